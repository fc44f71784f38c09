// SPDX-License-Identifier: Apache-2.0
// poller.h: the one place where a thread of this library sleeps: epoll, and an eventfd as doorbell.
//
// Sockets are registered edge-triggered with a word of theirs. poll() ORs what happened into the
// word; the owner, on the engine's thread, does the I/O until EAGAIN and clears the bits. ring()
// may be called by any thread or, through the eventfd, by a peer process; the rest by one at a
// time, save that one thread may sleep in poll() while others add and remove.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "base/clock.h"
#include "ciuic/status.h"

namespace ciuic::posix {

// Bits of a socket's ready word.
inline constexpr uint32_t kReadable = 1;
inline constexpr uint32_t kWritable = 2;
inline constexpr uint32_t kHangUp = 4;  // error or end of stream; reads tell which

class Poller {
 public:
  static Result<std::unique_ptr<Poller>> create();
  ~Poller();
  Poller(const Poller&) = delete;
  Poller& operator=(const Poller&) = delete;

  // Does not own `fd`. `ready` outlives the registration; removal may race with a sleeping poll(),
  // which then does not touch `ready` any more once remove() has returned.
  Status add(int fd, std::atomic<uint32_t>* ready);
  void remove(int fd);

  // Collects events; sleeps until there is one, the doorbell rings or `timeout_ms` is over. 0: does
  // not sleep. -1: no limit. Returns whether anything happened.
  bool poll(int64_t timeout_ms);

  void ring();
  int doorbell_fd() const;  // an eventfd; a peer process that was given it writes 8 bytes

 private:
  struct State;
  explicit Poller(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace ciuic::posix
