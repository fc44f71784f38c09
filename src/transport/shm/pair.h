// SPDX-License-Identifier: Apache-2.0
// pair.h: one rank's half of making a shared-memory link to one other rank.
//
// Three messages in each direction, after the handshake: an offer with the segment and the
// doorbell, the nonce that was read in the other's segment, and the verdict. So both halves end
// alike.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ciuic/status.h"
#include "drivers/posix/fd_passing.h"
#include "drivers/posix/memfd.h"
#include "transport/handshake_io.h"
#include "transport/shm/segment.h"

namespace ciuic::transport::shm {

class Pair {
 public:
  // `doorbell` is given to the peer. A null segment, for want of memory, fails on both sides, once
  // the peer has heard of it.
  Pair(std::shared_ptr<Segment> segment, int peer, int doorbell);

  int peer() const { return peer_; }
  bool settled() const { return stage_ == Stage::kDone || stage_ == Stage::kFailed; }
  bool has_socket() const { return socket_.valid(); }
  int socket() const { return socket_.get(); }
  bool is_sending();

  // A connection that is still to be proven, or was proven already.
  void connected(posix::UniqueFd socket, security::Handshake handshake);
  void proven(posix::UniqueFd socket);

  // Does what the socket allows. A connection that ends during the handshake leaves the pair
  // without a socket: the peer may have been too busy, and is asked again.
  void progress();

  void fail(Status reason);
  const Status& reason() const { return reason_; }

  // What a link is made of, once the pair is settled and did not fail.
  struct Outcome {
    posix::UniqueFd socket;
    posix::UniqueFd doorbell;
    posix::Mapping mapping;
    SegmentView view;
  };
  Outcome take_outcome();

 private:
  enum class Stage { kConnecting, kProving, kOffer, kProof, kVerdict, kDone, kFailed };

  void begin(Stage stage, std::string out);
  Result<bool> exchange();  // true: this stage's message has gone and the peer's has come
  void prove();
  void look_at_offer();
  void look_at_proof();
  void look_at_verdict();

  std::shared_ptr<Segment> segment_;
  int peer_;
  int doorbell_;
  Stage stage_ = Stage::kConnecting;
  posix::UniqueFd socket_;
  std::optional<HandshakeIo> handshake_;
  std::string out_;  // what is left of it
  std::string in_;
  size_t in_wanted_ = 0;
  std::vector<posix::UniqueFd> passed_;
  Status verdict_;  // this side's
  Status reason_;
  Outcome outcome_;
};

}  // namespace ciuic::transport::shm
