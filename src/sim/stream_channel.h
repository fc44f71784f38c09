// SPDX-License-Identifier: Apache-2.0
// stream_channel.h: a channel like a TCP connection: a stream of bytes through a socket's buffer.
//
// The payload is read from the sender's memory piece by piece, when there is room and the sender
// steps; it counts as sent when its last byte has left, or later. The receiver is told of a payload
// and says where it goes, and it comes there piece by piece too.
#pragma once

#include <vector>

#include "sim/channel.h"
#include "sim/fifo.h"

namespace ciuic::sim {

class StreamChannel final : public Channel {
 public:
  StreamChannel(World* world, int from, int to, const ChannelOptions& options, Random random)
      : Channel(world, from, to, options, random) {}

  bool push() override;
  bool complete(TimeNs until) override;
  uint64_t sent() const override { return sent_; }

  bool has_arrivals() const override;
  bool pull() override;
  bool receive(transport::Arrival* arrival) override;
  void place(std::byte* destination) override;
  void close_receiver() override;

 private:
  struct Message {
    Outgoing outgoing;
    uint64_t hash = 0;
    std::vector<std::byte> bytes;  // of the payload, as far as they have been written
    size_t total = 0;              // with the header
    size_t written = 0;
    uint64_t begin = 0;  // its first byte's place in the stream
  };
  struct Piece {
    uint64_t end = 0;  // place in the stream
    TimeNs at = 0;     // when all before it has arrived
  };
  struct Completion {
    TimeNs at = 0;
    const std::byte* payload = nullptr;  // the caller's, to be looked at once more
    size_t bytes = 0;
    uint64_t hash = 0;
    bool counts = true;
  };

  bool has_room(size_t payload_bytes) override;
  void accept(Outgoing message) override;
  void flush_and_end() override;
  void forget_unsent() override;
  bool write();
  void arrive();
  void consume(size_t bytes);
  void pop();

  Fifo<Message> messages_;  // accepted and not received
  size_t unwritten_ = 0;    // the first of them that is not wholly written
  Fifo<Completion> completions_;
  Fifo<Piece> pieces_;
  uint64_t sent_ = 0;
  uint64_t accepted_end_ = 0;  // places in the stream
  uint64_t written_end_ = 0;
  uint64_t arrived_end_ = 0;
  uint64_t read_end_ = 0;

  bool announced_ = false;
  std::byte* destination_ = nullptr;
  size_t placed_ = 0;  // bytes that are at the destination
};

}  // namespace ciuic::sim
