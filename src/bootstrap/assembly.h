// SPDX-License-Identifier: Apache-2.0
// assembly.h: the ranks of a group, in touch through rank 0 until the join is over.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "bootstrap/channel.h"
#include "bootstrap/messages.h"
#include "ciuic/status.h"

namespace ciuic::bootstrap {

// Something that goes on while a rank waits for the others.
class Bystander {
 public:
  virtual ~Bystander() = default;
  virtual void add_to(std::vector<pollfd>* fds) = 0;
  virtual void progress() = 0;  // never blocks
};

// One thread. Closing is destruction.
class Assembly {
 public:
  // `channels`: rank 0 has one for each rank (that for itself empty), the others one, to rank 0.
  Assembly(int rank, Roll roll, std::vector<std::unique_ptr<Channel>> channels);

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(roll_.cards.size()); }
  const Roll& roll() const { return roll_; }

  // Connections to this rank that had to go because they proved nothing.
  uint64_t strangers() const { return strangers_; }
  void count_strangers(uint64_t more) { strangers_ += more; }

  // The connections, which outlive the join as the group's control plane. No more rounds then.
  std::vector<std::unique_ptr<Channel>> take_channels() { return std::move(channels_); }

  // All ranks call it; each gets what all gave, by rank. Where one gave an error, every rank gets
  // that of the lowest rank that gave one, with that rank's name before it. kTimeout and kPeerLost
  // name the ranks. After an error every further call returns it.
  Result<std::vector<std::string>> gather(const Result<std::string>& mine, TimeNs deadline,
                                          Bystander* bystander = nullptr);

  // Between two rounds, while this rank waits for something else than rank 0: what to poll, and a
  // look at these entries afterwards, or at none. Not ok: the next gather() ends with an error at
  // once, since a rank is gone. Takes nothing that belongs to that round.
  void watch(std::vector<pollfd>* fds) const;
  Status look(std::span<const pollfd> entries);

 private:
  RoundResult collect(const Result<std::string>& mine, TimeNs deadline, Bystander* bystander);
  RoundResult ask_rank_0(const Result<std::string>& mine, TimeNs deadline, Bystander* bystander);
  Status take_round(int rank, std::vector<Result<std::string>>* given, int* missing);
  std::string who_is_missing(const std::vector<Result<std::string>>& given) const;

  int rank_;
  Roll roll_;
  std::vector<std::unique_ptr<Channel>> channels_;
  uint32_t round_ = 0;
  Status failed_;
  uint64_t strangers_ = 0;
};

}  // namespace ciuic::bootstrap
