// SPDX-License-Identifier: Apache-2.0
// channel_fuzz.cc: a connection of the join, from its first byte on, or from after the proof on.

#include "bootstrap/channel.h"
#include "input.h"
#include "sockets.h"

using namespace ciuic;

static constexpr size_t kMaxFrame = 40;

static void take_frames(bootstrap::Channel* channel) {
  std::string frame;
  for (int taken = 0; channel->receive(&frame); ++taken) {
    fuzz::require(frame.size() <= kMaxFrame, "a bounded frame");
    fuzz::require(taken < 64, "a bounded queue");
    if (frame.size() > 3) channel->send(frame.substr(1));
  }
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::Input input(data, size);
  const bool accepts = input.flag();
  const bool proven = input.flag();
  fuzz::SocketPair sockets = fuzz::socket_pair();
  auto mine = accepts ? security::Handshake::accepting(fuzz::kSecret, fuzz::identity(-1, 0))
                      : security::Handshake::connecting(fuzz::kSecret, fuzz::identity(0, 1));
  auto peer = accepts ? security::Handshake::connecting(fuzz::kSecret, fuzz::identity(1, 0))
                      : security::Handshake::accepting(fuzz::kSecret, fuzz::identity(-1, 1));
  bootstrap::Channel channel(std::move(sockets.ours), std::move(mine), kMaxFrame);
  for (int move = 0; proven && move < 4; ++move) {
    fuzz::shake(sockets.theirs, &peer);
    fuzz::require(channel.progress().ok(), "an honest peer is heard");
  }
  fuzz::require(channel.proven() == proven, "a proof, where there was one");
  Status status;
  fuzz::say_in_pieces(sockets.theirs, &input, [&] {
    if (status.ok()) status = channel.progress();
    take_frames(&channel);
    [[maybe_unused]] const std::string heard = fuzz::hear(sockets.theirs, 4096);
  });
  fuzz::require(channel.proven() == proven, "no proof without the secret");
  sockets.theirs.reset();
  for (int i = 0; status.ok() && i < 1000; ++i) {
    status = channel.progress();
    take_frames(&channel);
  }
  fuzz::require(!status.ok(), "an end that is seen");
  fuzz::require_text(status);
  return 0;
}
