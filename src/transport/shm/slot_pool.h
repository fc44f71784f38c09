// SPDX-License-Identifier: Apache-2.0
// slot_pool.h: which slots of the own segment are free, and who still reads the others.
//
// A slot's content has a generation. It is written once, may then be named to any number of
// readers, and is free again when each of them has released that generation. One thread at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "transport/shm/segment_layout.h"

namespace ciuic::transport::shm {

class SlotPool {
 public:
  explicit SlotPool(int slot_count);

  // Names where the reader with this index tells what it released. A slot can be named to it from
  // then on.
  void attach(int reader, const Feedback* feedback) { feedback_[index(reader)] = feedback; }

  // The reader's words are no longer there. What it has not released is never given out again: it
  // may still be reading, and the group is at its end.
  void detach(int reader) { feedback_[index(reader)] = nullptr; }

  // Whether take() would find a slot for so many bytes, as far as is known.
  bool has_free(size_t bytes) const {
    return (bytes > kSmallSlotBytes ? free_ & kLarge : free_) != 0;
  }

  // The same, after a look at what the readers have released.
  bool find_free(size_t bytes) {
    if (bytes <= kSmallSlotBytes) reclaim(kSmall);
    if (!has_free(bytes)) reclaim(kLarge);
    return has_free(bytes);
  }

  // A free slot, in turn, for a new content; only after one of these said yes. Small payloads take
  // a large slot only where no small one is free.
  int take(size_t bytes);

  // The slot that take() would give next, or -1: for prefetching.
  int next(size_t bytes) const;

  // Names the content to a reader.
  void add_reader(int slot, int reader) {
    readers_[index(slot)] |= uint64_t{1} << reader;
    free_ &= ~(uint32_t{1} << slot);
  }

  uint64_t generation(int slot) const { return generation_[index(slot)]; }

 private:
  static constexpr uint32_t kSmall = (uint32_t{1} << kSmallSlots) - 1;
  static constexpr uint32_t kLarge = ~kSmall;
  static size_t index(int number) { return static_cast<size_t>(number); }

  int pick(size_t bytes) const;
  void reclaim(uint32_t slots);  // finds those that all readers released

  uint32_t all_;
  uint32_t free_;
  int small_cursor_ = 0;  // where the search goes on, so that slots take turns
  int large_cursor_ = kSmallSlots;
  std::array<uint64_t, kMaxSlots> generation_{};
  std::array<uint64_t, kMaxSlots> readers_{};  // bits; zero: none, or free
  std::array<const Feedback*, kMaxLocalRanks> feedback_{};
};

}  // namespace ciuic::transport::shm
