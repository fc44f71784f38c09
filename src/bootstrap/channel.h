// SPDX-License-Identifier: Apache-2.0
// channel.h: a connection over which two processes talk at the join: proof first, then frames.
//
// Never blocks: its owner polls `fd()` for `events()` and calls progress(). Nothing is believed or
// allocated for the peer before the handshake is done; frames are bounded. One thread.
#pragma once

#include <poll.h>

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "ciuic/status.h"
#include "drivers/posix/address.h"
#include "drivers/posix/unique_fd.h"
#include "security/handshake.h"

namespace ciuic::bootstrap {

class Channel {
 public:
  // A connection that was accepted.
  Channel(posix::UniqueFd fd, security::Handshake handshake, size_t max_frame_bytes);

  // Begins to connect to `address`; a failure comes from progress().
  static Result<Channel> connect(const posix::Address& address, security::Handshake handshake,
                                 size_t max_frame_bytes);

  int fd() const { return fd_.get(); }
  short events() const;

  // Does what can be done now. An error is final: kPeerLost, kPermission, kMismatch, kSystem, or
  // kInvalidArgument where the peer talks nonsense. Frames that came before can still be received.
  Status progress();

  bool proven() const { return handshake_.done() && !connecting_; }
  const security::Identity& peer() const { return handshake_.peer(); }

  void send(std::string_view frame);  // queues
  bool receive(std::string* frame);   // false: no whole frame is there
  bool flushed() const { return out_.empty(); }

  // Sends what is queued, until the deadline.
  Status flush(TimeNs deadline);

  // The next frame; kTimeout at the deadline.
  Result<std::string> receive_by(TimeNs deadline);

 private:
  Status write_out();
  Status read_in();
  Status take_input();

  posix::UniqueFd fd_;
  security::Handshake handshake_;
  size_t max_frame_bytes_;
  bool connecting_ = false;
  posix::Address address_;
  std::string out_;
  std::string in_;
  std::deque<std::string> frames_;
};

// Waits with poll(2) until something happens or the deadline comes.
Status wait_for_any(std::vector<pollfd>* fds, TimeNs deadline);

}  // namespace ciuic::bootstrap
