// SPDX-License-Identifier: Apache-2.0
// slot_pool_test.cc: slots are given out only when every reader of the last content is done.

#include "transport/shm/slot_pool.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>

namespace ciuic::transport::shm {
namespace {

constexpr int kSlots = kSmallSlots + 4;

class SlotPoolTest : public testing::Test {
 protected:
  SlotPoolTest() {
    for (int reader = 0; reader < 3; ++reader) {
      feedback_.push_back(std::make_unique<Feedback>());
      pool_.attach(reader, feedback_.back().get());
    }
  }
  void release(int reader, int slot) {
    feedback_[static_cast<size_t>(reader)]->released(slot).store(pool_.generation(slot));
  }
  int take(size_t bytes, int reader) {
    EXPECT_TRUE(pool_.has_free(bytes) || pool_.find_free(bytes));
    const int slot = pool_.take(bytes);
    pool_.add_reader(slot, reader);
    return slot;
  }

  std::vector<std::unique_ptr<Feedback>> feedback_;
  SlotPool pool_{kSlots};
};

TEST_F(SlotPoolTest, GivesEachSlotOnceUntilItIsReleased) {
  std::set<int> large;
  for (int i = 0; i < 4; ++i) large.insert(take(kLargeSlotBytes, 0));
  EXPECT_EQ(large.size(), 4u);
  EXPECT_GE(*large.begin(), kSmallSlots);
  EXPECT_FALSE(pool_.find_free(kLargeSlotBytes));
  EXPECT_FALSE(pool_.find_free(kSmallSlotBytes + 1));
  EXPECT_TRUE(pool_.find_free(kSmallSlotBytes));

  release(0, kSmallSlots + 2);
  EXPECT_FALSE(pool_.has_free(kLargeSlotBytes));
  EXPECT_TRUE(pool_.find_free(kLargeSlotBytes));
  EXPECT_EQ(take(kLargeSlotBytes, 0), kSmallSlots + 2);
  EXPECT_FALSE(pool_.find_free(kLargeSlotBytes));
}

TEST_F(SlotPoolTest, SmallPayloadsTakeSmallSlotsWhileThereAreSome) {
  for (int i = 0; i < kSmallSlots; ++i) EXPECT_LT(take(100, 1), kSmallSlots);
  EXPECT_GE(take(100, 1), kSmallSlots);
  for (int i = 0; i < 3; ++i) take(100, 1);
  EXPECT_FALSE(pool_.find_free(100));
  release(1, 5);
  EXPECT_TRUE(pool_.find_free(100));
  EXPECT_EQ(take(100, 1), 5);
}

TEST_F(SlotPoolTest, WaitsForEveryReaderOfAContent) {
  std::vector<int> slots;
  for (int i = 0; i < 4; ++i) {
    slots.push_back(take(kLargeSlotBytes, 0));
    pool_.add_reader(slots.back(), 1);
    pool_.add_reader(slots.back(), 2);
  }
  release(2, slots[1]);
  EXPECT_FALSE(pool_.find_free(kLargeSlotBytes));
  release(0, slots[1]);
  EXPECT_FALSE(pool_.find_free(kLargeSlotBytes));
  release(1, slots[1]);
  EXPECT_TRUE(pool_.find_free(kLargeSlotBytes));
}

TEST_F(SlotPoolTest, AnEarlierGenerationsReleaseDoesNotCount) {
  for (int i = 0; i < 4; ++i) release(0, take(kLargeSlotBytes, 0));
  EXPECT_TRUE(pool_.find_free(kLargeSlotBytes));
  for (int i = 0; i < 4; ++i) take(kLargeSlotBytes, 0);
  EXPECT_FALSE(pool_.find_free(kLargeSlotBytes));
}

TEST_F(SlotPoolTest, ALateReaderOfAFreeContentHoldsIt) {
  const int slot = take(kLargeSlotBytes, 0);
  release(0, slot);
  for (int i = 0; i < 3; ++i) take(kLargeSlotBytes, 0);
  EXPECT_TRUE(pool_.find_free(kLargeSlotBytes));
  EXPECT_EQ(pool_.next(kLargeSlotBytes), slot);
  pool_.add_reader(slot, 1);
  EXPECT_FALSE(pool_.find_free(kLargeSlotBytes));
  EXPECT_EQ(pool_.next(kLargeSlotBytes), -1);
  release(1, slot);
  EXPECT_TRUE(pool_.find_free(kLargeSlotBytes));
}

TEST_F(SlotPoolTest, WhatAGoneReaderHeldIsNeverGivenOut) {
  const int held = take(kLargeSlotBytes, 0);
  pool_.add_reader(held, 1);
  pool_.detach(1);
  feedback_[1].reset();
  release(0, held);
  for (int i = 0; i < 3; ++i) release(0, take(kLargeSlotBytes, 0));
  for (int i = 0; i < 20; ++i) {
    const int slot = take(kLargeSlotBytes, 0);
    EXPECT_NE(slot, held);
    release(0, slot);
  }
}

}  // namespace
}  // namespace ciuic::transport::shm
