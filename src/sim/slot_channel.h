// SPDX-License-Identifier: Apache-2.0
// slot_channel.h: a channel like shared memory: a ring of lines, and slots that readers share.
#pragma once

#include <memory>
#include <vector>

#include "sim/channel.h"
#include "sim/fifo.h"

namespace ciuic::sim {

// The slots of one rank in one group, for all its readers.
class SlotPool {
 public:
  explicit SlotPool(int slots) : slots_(slots) {}

  bool has_free() const;

  // A slot with a copy of the payload, for one reader. Names a use of a slot, never given twice.
  uint64_t fill(const std::byte* payload, size_t bytes);

  // One more reader for what a publication names; false where all its readers have been, or it is
  // another pool's.
  bool share(const transport::Publication& publication);
  void publish(uint64_t use, transport::Publication* publication) const;

  const std::byte* payload(uint64_t use) const;
  void release(uint64_t use);  // by one reader

  void reuse_early() { reuses_early_ = true; }  // Mutant::kSlotReusedEarly

 private:
  struct Slot {
    std::vector<std::byte> bytes;
    uint64_t use = 0;
    int readers = 0;
  };

  std::vector<Slot> slots_;
  size_t next_ = 0;
  uint64_t uses_ = 0;
  bool reuses_early_ = false;
};

class SlotChannel final : public Channel {
 public:
  SlotChannel(World* world, int from, int to, const ChannelOptions& options, Random random,
              std::shared_ptr<SlotPool> pool);

  bool push() override { return false; }
  uint64_t sent() const override { return sent_; }

  bool has_arrivals() const override;
  bool pull() override;
  bool receive(transport::Arrival* arrival) override;
  void close_receiver() override;

 private:
  struct Line {
    wire::Header header;
    std::vector<std::byte> bytes;  // what fits into the line
    uint64_t use = 0;              // of a slot; 0: none
    TimeNs at = 0;                 // when the reader can see it
    bool delivered = true;
  };

  bool has_room(size_t payload_bytes) override;
  void accept(Outgoing message) override;
  void flush_and_end() override {}
  void released(uint64_t use) override;

  std::shared_ptr<SlotPool> pool_;
  Fifo<Line> lines_;
  uint64_t sent_ = 0;
};

}  // namespace ciuic::sim
