// SPDX-License-Identifier: Apache-2.0
// reception.h: rank 0's part of the join: it receives everybody's card, and answers.
#pragma once

#include <list>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "bootstrap/assembly.h"
#include "bootstrap/channel.h"
#include "bootstrap/fenced_store.h"
#include "bootstrap/messages.h"
#include "ciuic/status.h"
#include "drivers/posix/unique_fd.h"

namespace ciuic::bootstrap {

class Reception {
 public:
  // `roll` has everything but the cards. `fence`: where all have met before they come here, or
  // null.
  Reception(std::vector<posix::UniqueFd> listeners, const Card& mine, Roll roll, TimeNs deadline,
            FencedStore* fence = nullptr);

  // Waits for all ranks and answers them. Errors as exchange_cards().
  Result<std::unique_ptr<Assembly>> run();

 private:
  struct Visitor {
    std::unique_ptr<Channel> channel;
    TimeNs deadline = kNever;  // until which the card has to be here; then, how long it can wait
    bool welcomed = false;
    bool has_card = false;
    int rank = -1;  // under which it is counted; -1: it is not

    bool is_proven() const { return channel->proven(); }
    bool has_said_hello() const { return !channel->peer().job.empty(); }
  };

  void accept_waiting(int listener);
  bool progress(Visitor* visitor);
  void take_card(Visitor* visitor, const std::string& frame);
  bool make_room();
  void turn_away(std::list<Visitor>::iterator visitor, const std::string& why);
  void fail(const Status& status);
  Status missing_ranks() const;
  Status tls_differs(int rank) const;
  TimeNs patience() const;  // until when all that have come can wait
  TimeNs next_deadline() const;
  void answer_failure();
  Result<std::unique_ptr<Assembly>> answer_roll();

  int former_rank(int rank) const { return fence_ == nullptr ? -1 : fence_->former_rank(rank); }
  void look_at_fence(const std::vector<pollfd>& fds, size_t first);

  std::vector<posix::UniqueFd> listeners_;
  FencedStore* fence_;
  Card mine_;
  Roll roll_;
  TimeNs deadline_;              // lowered to what those who came can wait
  std::list<Visitor> visitors_;  // oldest first
  std::vector<Visitor*> by_rank_;
  int present_ = 1;
  Status failure_;
  TimeNs linger_until_ = kNever;  // after a failure: for others whom it concerns
  TimeNs accept_from_ = 0;
  Status accepted_;  // how the last accept() ended
  uint64_t strangers_ = 0;
  std::string last_stranger_;
};

}  // namespace ciuic::bootstrap
