// SPDX-License-Identifier: Apache-2.0
// tuner_test.cc: what calls get, and the table as text.

#include "tuner/tuner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tuner/cost.h"
#include "tuner/estimate.h"

namespace ciuic::tuner {
namespace {

using plan::Algorithm;
using plan::Layout;
using plan::Operation;

Choice chosen(Operation operation, int64_t bytes, const char* layout,
              DataType dtype = DataType::kFloat32) {
  const Call call{operation, dtype, ReduceOp::kSum, bytes / static_cast<int64_t>(size_of(dtype)),
                  0};
  return choose(call, *Layout::parse(layout), TuningTable{});
}

TEST(TunerTest, AllReduceByLayoutAndSize) {
  EXPECT_EQ(chosen(Operation::kAllReduce, 8, "2").algorithm, Algorithm::kOneShot);
  EXPECT_EQ(chosen(Operation::kAllReduce, 16 << 10, "2").algorithm, Algorithm::kOneShot);
  EXPECT_EQ(chosen(Operation::kAllReduce, 1 << 20, "2").algorithm, Algorithm::kTwoShot);
  EXPECT_EQ(chosen(Operation::kAllReduce, 8, "4x1").algorithm, Algorithm::kRecursiveDoubling);
  EXPECT_EQ(chosen(Operation::kAllReduce, 1 << 20, "3x1").algorithm, Algorithm::kRing);
  EXPECT_EQ(chosen(Operation::kAllReduce, 1 << 20, "8x1").algorithm, Algorithm::kRecursiveHalving);
  EXPECT_EQ(chosen(Operation::kAllReduce, 64 << 20, "8x1").algorithm, Algorithm::kRing);
  EXPECT_EQ(chosen(Operation::kAllReduce, 8, "4x2").algorithm, Algorithm::kTwoLevel);
  EXPECT_EQ(chosen(Operation::kAllReduce, 64 << 10, "4x2").algorithm, Algorithm::kTwoLevelSharded);
  EXPECT_EQ(chosen(Operation::kAllReduce, 64 << 10, "1+4").algorithm, Algorithm::kTwoLevel);
  EXPECT_EQ(chosen(Operation::kAllReduce, 1 << 20, "3+2").algorithm, Algorithm::kTwoLevelRing);
}

TEST(TunerTest, EveryChoiceFitsItsLayout) {
  int choices = 0;
  for (const char* text : {"1", "2", "5", "17", "2x1", "9x1", "3+2", "4x2", "1+4", "0,1,0,1,0"}) {
    const Layout layout = *Layout::parse(text);
    for (int operation = 0; operation < plan::kOperations; ++operation) {
      for (int dtype = 0; dtype < kDataTypes; ++dtype) {
        for (int64_t count :
             {int64_t{0}, int64_t{1}, int64_t{5000}, int64_t{1} << 20, int64_t{1} << 33}) {
          Call call{static_cast<Operation>(operation), static_cast<DataType>(dtype), ReduceOp::kSum,
                    count, 0};
          for (const bool uneven : {false, true}) {
            call.uneven = uneven;
            if (uneven && plan::uneven_name_of(call.operation) == nullptr) continue;
            const Choice choice = choose(call, layout, TuningTable{});
            EXPECT_TRUE(fits(call.operation, choice.algorithm, layout)) << text;
            EXPECT_EQ(choice.chunk_bytes % size_of(call.dtype), 0u);
            EXPECT_GE(choice.chunk_bytes, 16u << 10);
            EXPECT_TRUE(!uneven || takes_uneven(call.operation, choice.algorithm)) << text;
            ++choices;
          }
        }
      }
    }
  }
  EXPECT_EQ(choices, 10 * (9 + 5) * kDataTypes * 5);
}

// What differs between ranks must not decide what they choose.
TEST(TunerTest, UnevenCallsOfWhichNoRankKnowsAllAreChosenWithoutTheirCount) {
  for (const Operation operation :
       {Operation::kAllToAll, Operation::kGather, Operation::kScatter}) {
    for (const char* text : {"5", "5x1", "3+2"}) {
      const Layout layout = *Layout::parse(text);
      Call call{operation, DataType::kInt64, ReduceOp::kSum, 0, 0, /*uneven=*/true};
      const Choice none = choose(call, layout, TuningTable{});
      call.count = int64_t{1} << 30;
      const Choice many = choose(call, layout, TuningTable{});
      EXPECT_EQ(none.algorithm, many.algorithm);
      EXPECT_EQ(none.chunk_bytes, many.chunk_bytes);
    }
  }
}

// On several hosts no algorithm that may be chosen is predicted to be much better than the one that
// is. The barrier's is not looked at: there is but one.
class ChoiceTest : public testing::TestWithParam<const char*> {};

TEST_P(ChoiceTest, IsNearlyTheBestByTheModel) {
  const Layout layout = *Layout::parse(GetParam());
  const TuningTable table;
  for (int number = 0; number < plan::kOperations; ++number) {
    const auto operation = static_cast<Operation>(number);
    for (int64_t count = 1; count <= int64_t{1} << 24; count *= 8) {
      const Call call{operation, DataType::kFloat32, ReduceOp::kSum, count, 0};
      const Choice choice = choose(call, layout, table);
      double chosen_us = 0;
      double best_us = 1e18;
      Algorithm best{};
      for (const Algorithm algorithm : candidates(call, layout, table)) {
        std::vector<plan::Plan> plans;
        for (int rank = 0; rank < layout.size(); ++rank) {
          plans.push_back(make(operation, algorithm, layout, rank, 0));
        }
        const size_t chunk_bytes = choose_chunk_bytes(call, algorithm, layout, table);
        const double us = predicted_us(plans, layout, {count, call.dtype, chunk_bytes}, table);
        if (algorithm == choice.algorithm) chosen_us = us;
        if (us < best_us) best = algorithm;
        best_us = std::min(best_us, us);
      }
      EXPECT_LE(chosen_us, 1.3 * best_us)
          << name_of(operation) << " of " << count << " by " << name_of(choice.algorithm)
          << ", where " << name_of(best) << " is best";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, ChoiceTest,
                         testing::Values("2x1", "3x1", "4x1", "5x1", "8x1", "12x1", "16x1", "17x1",
                                         "32x1", "2x2", "3+2", "1+4", "2x4", "4x4", "3x3", "2x8",
                                         "8x4", "1+3+2", "0,1,0,1,0,1,0,1", "0,1,2,0,1,2"));

TEST(TunerTest, SixteenBitFloatsAreFoldedOnceAHost) {
  for (const DataType dtype : {DataType::kFloat16, DataType::kBFloat16}) {
    for (int64_t bytes = 2; bytes <= int64_t{1} << 30; bytes *= 4) {
      const Algorithm flat = chosen(Operation::kAllReduce, bytes, "8", dtype).algorithm;
      EXPECT_TRUE(flat == Algorithm::kOneShot || flat == Algorithm::kTwoShot);
      const Algorithm deep = chosen(Operation::kAllReduce, bytes, "3+2", dtype).algorithm;
      EXPECT_TRUE(deep == Algorithm::kTwoLevel || deep == Algorithm::kTwoLevelRing ||
                  deep == Algorithm::kTwoLevelSharded);
    }
  }
}

TEST(TunerTest, LargeBlocksHaveEqualChunks) {
  EXPECT_EQ(chosen(Operation::kAllReduce, 64 << 10, "2").chunk_bytes, 64u << 10);
  EXPECT_EQ(chosen(Operation::kAllReduce, 140 << 10, "2").chunk_bytes, 36u << 10);
  EXPECT_EQ(chosen(Operation::kAllReduce, 256 << 10, "2").chunk_bytes, 64u << 10);
  EXPECT_EQ(chosen(Operation::kReduceScatter, 70 << 10, "2").chunk_bytes, 36u << 10);
  EXPECT_EQ(chosen(Operation::kAllGather, 70 << 10, "2").chunk_bytes, 64u << 10);
  EXPECT_EQ(chosen(Operation::kAllReduce, 1 << 20, "4x1").chunk_bytes, 256u << 10);
  EXPECT_EQ(chosen(Operation::kAllReduce, 1 << 20, "4x2").chunk_bytes, 64u << 10);
}

TEST(TuningTableTest, TextGoesThereAndBack) {
  TuningTable table;
  table.direct_reduce_bytes = 12345;
  const Result<TuningTable> read = TuningTable::parse(table.serialize());
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(*read, table);
  EXPECT_EQ(read->hash(), table.hash());
  EXPECT_NE(read->hash(), TuningTable{}.hash());
}

TEST(TuningTableTest, BadTextIsRefused) {
  const std::string good = TuningTable{}.serialize();
  std::vector<std::string> bad = {"", "\n", "ciuic tuning table 2\n", good + "x 1\n", good + "\n"};
  for (size_t length = 0; length < good.size(); ++length) bad.push_back(good.substr(0, length));
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    bad.push_back(text);
  };
  with("step_ns 60", "step_ns -1");
  with("step_ns 60", "step_ns 60 ");
  with("step_ns 60", "step_ns 6e1");
  with("step_ns 60", "step_ns 99999999999999999999");
  with("step_ns 60", "steps 60");
  with("step_ns 60", "step_ns");
  with("tcp_mb_per_s 1200", "tcp_mb_per_s 0");
  for (const std::string& text : bad) EXPECT_FALSE(TuningTable::parse(text).ok()) << text;
}

}  // namespace
}  // namespace ciuic::tuner
