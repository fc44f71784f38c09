// SPDX-License-Identifier: Apache-2.0
// channel.h: a connection over which two processes talk: proof first, then frames, by TLS where
// the handshake's identity says so.
//
// Never blocks: its owner polls `fd()` for `events()` and calls progress(). What was read and not
// taken waits in here, so the owner polls only after a progress() that left nothing to receive().
// Nothing is believed or allocated for the peer before the handshake is done; frames are bounded.
// One thread.
#pragma once

#include <poll.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "ciuic/status.h"
#include "drivers/posix/address.h"
#include "drivers/posix/unique_fd.h"
#include "security/handshake.h"
#include "security/tls_socket.h"

namespace ciuic::bootstrap {

class Channel {
 public:
  // A connection that was accepted.
  Channel(posix::UniqueFd fd, security::Handshake handshake, size_t max_frame_bytes);

  // With TLS the peer is told that this is the end, if the socket takes it.
  ~Channel();
  Channel(Channel&&) = default;
  Channel& operator=(Channel&&) = delete;

  // Begins to connect to `address`; a failure comes from progress().
  static Result<Channel> connect(const posix::Address& address, security::Handshake handshake,
                                 size_t max_frame_bytes);

  int fd() const { return fd_.get(); }
  short events() const;

  // Does what can be done now. An error is final: kPeerLost, kPermission, kMismatch, kSystem, or
  // kInvalidArgument where the peer talks nonsense. Frames that came before can still be received.
  Status progress();

  // The secret, and with TLS the key that comes of it.
  bool proven() const;
  const security::Identity& peer() const { return handshake_.peer(); }

  // Whether it failed since one end alone wants TLS; peer() is then who it says it is.
  bool tls_differs() const { return handshake_.tls_differs(); }
  bool uses_tls() const { return tls_ != nullptr; }

  void send(std::string_view frame);  // queues
  bool receive(std::string* frame);   // false: no whole frame is there
  bool has_frame() const { return !frames_.empty(); }
  bool flushed() const;

  // Sends what is queued, until the deadline.
  Status flush(TimeNs deadline);

  // The next frame; kTimeout at the deadline.
  Result<std::string> receive_by(TimeNs deadline);

 private:
  Status write_proof();
  Status write_out();
  Status read_proof();
  Status read_in();
  Status take_frames();
  Status start_tls();
  Result<size_t> receive_some(char* buffer, size_t bytes);

  posix::UniqueFd fd_;
  security::Handshake handshake_;
  size_t max_frame_bytes_;
  bool connecting_ = false;
  posix::Address address_;
  std::string proof_out_;  // of the handshake, always in the clear
  std::string out_;        // frames
  size_t out_begin_ = 0;   // of them, what has gone
  std::string in_;
  std::deque<std::string> frames_;
  std::unique_ptr<security::TlsSocket> tls_;  // from the handshake's end on
  bool tls_established_ = false;
  uint32_t made_in_;  // fork_generation(): a child only lets go
};

// Waits with poll(2) until something happens or the deadline comes.
Status wait_for_any(std::vector<pollfd>* fds, TimeNs deadline);

}  // namespace ciuic::bootstrap
