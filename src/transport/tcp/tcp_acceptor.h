// SPDX-License-Identifier: Apache-2.0
// tcp_acceptor.h: takes a group's incoming connections and hands them to the links that await them.
//
// Links drive it while they are not connected; nobody else needs to. Who does not prove the
// secret is turned away and counted. One engine thread at a time; links hold a share of it.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "ciuic/status.h"
#include "drivers/posix/poller.h"
#include "drivers/posix/unique_fd.h"
#include "security/handshake.h"
#include "transport/handshake_io.h"

namespace ciuic::transport::tcp {

class TcpLink;

struct TcpAcceptorOptions {
  std::vector<posix::UniqueFd> listeners;  // non-blocking, as of posix::listen_at()
  std::string secret;
  security::Identity identity;      // job, epoch, group, and this rank as `to`
  posix::Poller* poller = nullptr;  // outlives it
  int64_t last_word_ms = 500;       // for what full sockets hold up when the group closes
};

class TcpAcceptor {
 public:
  static Result<std::shared_ptr<TcpAcceptor>> create(TcpAcceptorOptions options);
  ~TcpAcceptor();
  TcpAcceptor(const TcpAcceptor&) = delete;
  TcpAcceptor& operator=(const TcpAcceptor&) = delete;

  // Accepts and proves what can be now. Two loads where there is nothing to do.
  bool progress();

  // The link that a proven connection of `rank` goes to, until forget().
  void await(int rank, TcpLink* link) { links_[rank] = link; }
  void forget(int rank, const TcpLink* link) {
    const auto found = links_.find(rank);
    if (found != links_.end() && found->second == link) links_.erase(found);
  }

  // Until when links of the group may wait for their last words to go, all of them together, from
  // the first that asks on.
  TimeNs last_word_deadline(TimeNs now) {
    if (last_word_deadline_ == kNever) {
      last_word_deadline_ = deadline_after(now, options_.last_word_ms);
    }
    return last_word_deadline_;
  }

  uint64_t strangers() const { return strangers_; }  // turned away: not proven, or not awaited

  // How the last accept() ended. An error, most likely of descriptors: connections wait outside,
  // and it is tried again every kAcceptPauseMs.
  const Status& accepted() const { return accepted_; }

 private:
  static constexpr size_t kMaxPending = 64;  // of those who have proven nothing yet
  static constexpr int64_t kHandshakeMs = 10'000;
  static constexpr int64_t kAcceptPauseMs = 100;

  struct Pending {
    posix::UniqueFd fd;
    HandshakeIo handshake;
    TimeNs deadline;
    std::atomic<uint32_t> ready{0};
    Pending(posix::UniqueFd socket, security::Handshake proof, TimeNs until)
        : fd(std::move(socket)), handshake(std::move(proof)), deadline(until) {}
    bool is_proven() const { return false; }  // then it goes on to its link
    bool has_said_hello() const { return !handshake.peer().job.empty(); }
  };

  explicit TcpAcceptor(TcpAcceptorOptions options);

  bool accept_waiting();
  bool accept_some(int listener);
  void accept_later(const Status& why);
  bool make_room();
  bool prove_pending();
  void hand_over(std::list<Pending>::iterator pending);
  void turn_away(std::list<Pending>::iterator pending);

  TcpAcceptorOptions options_;
  std::atomic<uint32_t> ready_{0};  // of all listeners, and the timer
  posix::UniqueFd timer_;           // wakes a sleeper to accept again; invalid: there was none
  Status accepted_;
  bool has_warned_ = false;     // once; under a flood it comes and goes
  std::list<Pending> pending_;  // oldest first
  std::unordered_map<int, TcpLink*> links_;
  uint64_t strangers_ = 0;
  TimeNs last_word_deadline_ = kNever;
  pid_t pid_;  // a forked child only lets go
};

}  // namespace ciuic::transport::tcp
