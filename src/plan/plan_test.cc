// SPDX-License-Identifier: Apache-2.0
// plan_test.cc: block borders, and the order that finish() works out.

#include "plan/plan.h"

#include <gtest/gtest.h>

#include <limits>

namespace ciuic::plan {
namespace {

bool comes_after(const Plan& plan, int step, int earlier, bool whole) {
  for (const Dependency& dependency : plan.steps[step].after) {
    if (dependency.step == earlier) return dependency.whole == whole;
  }
  return false;
}

TEST(PartitionTest, EvenSplitCoversAll) {
  for (int blocks = 1; blocks <= 9; ++blocks) {
    const Partition partition{blocks, Partition::Unit::kSplit};
    for (int64_t count = 0; count <= 30; ++count) {
      EXPECT_EQ(partition.begin(0, count), 0);
      EXPECT_EQ(partition.begin(blocks, count), count);
      for (int block = 0; block < blocks; ++block) {
        const int64_t size = partition.begin(block + 1, count) - partition.begin(block, count);
        EXPECT_GE(size, count / blocks);
        EXPECT_LE(size, count / blocks + 1);
      }
    }
  }
}

TEST(PartitionTest, LargeCountsDoNotOverflow) {
  const int64_t most = std::numeric_limits<int64_t>::max();
  const Partition split{1000, Partition::Unit::kSplit};
  EXPECT_EQ(split.begin(1000, most), most);
  EXPECT_EQ(split.begin(500, most), most / 2);
  const Partition each{8, Partition::Unit::kEach};
  EXPECT_EQ(each.begin(8, int64_t{1} << 40), int64_t{1} << 43);
}

TEST(PartitionTest, UnevenBlocksBelongToRanks) {
  const std::vector<int64_t> sums = {0, 3, 3, 8};  // 3, 0 and 5 elements
  const Partition all{3, Partition::Unit::kEach};
  EXPECT_EQ(all.begin(1, sums), 3);
  EXPECT_EQ(all.begin(2, sums), 3);
  EXPECT_EQ(all.begin(3, sums), 8);
  const Partition round{5, Partition::Unit::kEach, /*first=*/2};  // ranks 2, 0, 1, 2, 0
  EXPECT_EQ(round.begin(0, sums), 0);
  EXPECT_EQ(round.begin(1, sums), 5);
  EXPECT_EQ(round.begin(2, sums), 8);
  EXPECT_EQ(round.begin(3, sums), 8);
  EXPECT_EQ(round.begin(4, sums), 13);
  EXPECT_EQ(round.begin(5, sums), 16);
  const Partition named{3, Partition::Unit::kEach, 0, {2, 2, 0}};
  EXPECT_EQ(named.begin(1, sums), 5);
  EXPECT_EQ(named.begin(2, sums), 10);
  EXPECT_EQ(named.begin(3, sums), 13);
}

TEST(PlanTest, UnevenCountsGoByTheirSpace) {
  Plan plan;
  plan.partitions[0] = plan.partitions[1] = {2, Partition::Unit::kEach};
  plan.partitions[2] = {2, Partition::Unit::kEach};
  const Counts both{{0, 1, 3}, {0, 4, 4}};
  EXPECT_EQ(plan.elements(input(1), 7, &both).begin, 1);
  EXPECT_EQ(plan.elements(input(1), 7, &both).size, 2);
  EXPECT_EQ(plan.elements(outputs(0, 2), 7, &both).size, 4);
  EXPECT_EQ(plan.space_elements(Space::kScratch, 7, &both), 3);
  EXPECT_EQ(plan.elements(outputs(0, 2), 7).size, 14);
  plan.partitions[0].blocks = 1;
  EXPECT_EQ(plan.space_elements(Space::kScratch, 7, &both), 4);
  const Counts one{{}, {0, 4, 4}};
  EXPECT_EQ(plan.space_elements(Space::kInput, 7, &one), 4);
}

TEST(PlanTest, ReadersComeAfterTheWriterAndWritersAfterReaders) {
  Plan plan;
  plan.receive(1, scratch(0));                  // 0
  plan.send({2}, scratch(0));                   // 1 reads what 0 wrote
  plan.receive(1, scratch(0));                  // 2 overwrites what 1 reads
  plan.receive(1, {Space::kScratch, 0, 2});     // 3 overwrites 2, of another size
  plan.send({2}, scratch(1));                   // 4 reads part of 3
  plan.reduce({3}, 0, scratch(3), scratch(3));  // 5 has nothing to do with them
  plan.finish();
  EXPECT_TRUE(plan.steps[0].after.empty());
  EXPECT_TRUE(comes_after(plan, 1, 0, /*whole=*/false));
  EXPECT_TRUE(comes_after(plan, 2, 1, /*whole=*/false));
  EXPECT_TRUE(comes_after(plan, 3, 2, /*whole=*/true));
  EXPECT_TRUE(comes_after(plan, 4, 3, /*whole=*/true));
  EXPECT_TRUE(plan.steps[5].after.empty());
}

TEST(PlanTest, InputIsOutputAtTheOffset) {
  Plan plan;
  plan.input_offset = 2;
  plan.send({1}, input(0));
  plan.receive(1, output(0));
  plan.receive(1, output(2));
  plan.finish();
  EXPECT_TRUE(plan.steps[1].after.empty());
  EXPECT_TRUE(comes_after(plan, 2, 0, /*whole=*/false));
}

TEST(PlanTest, OutputIsInputWhereTheOffsetIsNegative) {
  Plan plan;
  plan.input_offset = -2;
  plan.send({1}, input(0));
  plan.send({1}, input(2));
  plan.receive(1, output(0));
  plan.finish();
  EXPECT_TRUE(comes_after(plan, 2, 1, /*whole=*/false));
  EXPECT_FALSE(comes_after(plan, 2, 0, /*whole=*/false));
  plan.allows_in_place = false;
  plan.finish();
  EXPECT_TRUE(plan.steps[2].after.empty());
}

TEST(PlanTest, StreamsCountMessagesOfEachDirection) {
  Plan plan;
  plan.send({1, 2}, input(0));
  plan.send({2}, input(0), /*lane=*/1);
  plan.reduce({1, 2}, 0, input(0), scratch(0));
  plan.send({2}, scratch(0));
  plan.finish();
  ASSERT_EQ(plan.streams.size(), 3u);
  EXPECT_EQ(plan.steps[0].places[1].stream, 1);
  EXPECT_EQ(plan.steps[1].places[0].stream, 2);
  EXPECT_EQ(plan.steps[2].places[1].stream, 1);
  EXPECT_EQ(plan.steps[2].places[1].position, 0);
  EXPECT_EQ(plan.steps[3].places[0].position, 1);
  EXPECT_EQ(plan.streams[1].sends, 2);
  EXPECT_EQ(plan.streams[1].receives, 1);
  EXPECT_EQ(plan.streams[2].lane, 1);
}

TEST(PlanTest, FinishTwiceChangesNothing) {
  Plan plan;
  plan.receive(1, output(0));
  plan.send({1}, output(0));
  plan.finish();
  plan.finish();
  EXPECT_EQ(plan.steps[1].after.size(), 1u);
  EXPECT_EQ(plan.streams.size(), 1u);
  EXPECT_EQ(plan.streams[0].sends, 1);
}

}  // namespace
}  // namespace ciuic::plan
