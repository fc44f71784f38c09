// SPDX-License-Identifier: Apache-2.0
// slot_pool.cc: slots are looked through only when none is known to be free, so that the readers'
// words, which lie in other cores' caches, are fetched once for many messages.

#include "transport/shm/slot_pool.h"

#include <bit>

#include "base/assert.h"

namespace ciuic::transport::shm {

SlotPool::SlotPool(int slot_count) {
  CIUIC_ASSERT(slot_count > kSmallSlots && slot_count <= kMaxSlots);
  all_ = (uint32_t{1} << slot_count) - 1;
  free_ = all_;
}

void SlotPool::reclaim(uint32_t slots) {
  for (uint32_t busy = slots & all_ & ~free_; busy != 0; busy &= busy - 1) {
    const int slot = std::countr_zero(busy);
    uint64_t& readers = readers_[index(slot)];
    for (uint64_t left = readers; left != 0; left &= left - 1) {
      const int reader = std::countr_zero(left);
      const Feedback* feedback = feedback_[index(reader)];
      if (feedback == nullptr) continue;
      // Sequentially consistent: see Segment::set_sleeping().
      const uint64_t released = feedback->released(slot).load(std::memory_order_seq_cst);
      if (released != generation_[index(slot)]) continue;
      readers &= ~(uint64_t{1} << reader);
    }
    if (readers == 0) free_ |= uint32_t{1} << slot;
  }
}

int SlotPool::pick(size_t bytes) const {
  const uint32_t small = bytes <= kSmallSlotBytes ? free_ & kSmall : 0;
  const uint32_t candidates = small != 0 ? small : free_ & kLarge;
  if (candidates == 0) return -1;
  const uint32_t later =
      candidates & (~uint32_t{0} << (small != 0 ? small_cursor_ : large_cursor_));
  return std::countr_zero(later != 0 ? later : candidates);
}

int SlotPool::next(size_t bytes) const { return pick(bytes); }

int SlotPool::take(size_t bytes) {
  const int slot = pick(bytes);
  CIUIC_ASSERT(slot >= 0);
  // One past the last slot finds none later, so the search begins at the first again.
  (slot < kSmallSlots ? small_cursor_ : large_cursor_) = slot + 1;
  free_ &= ~(uint32_t{1} << slot);
  readers_[index(slot)] = 0;
  ++generation_[index(slot)];
  return slot;
}

}  // namespace ciuic::transport::shm
