// SPDX-License-Identifier: Apache-2.0
// parts_test.cc: which operations are cut, and where their parts lie.

#include "collective/parts.h"

#include <gtest/gtest.h>

#include <memory>

#include "plan/registry.h"

namespace ciuic::collective {
namespace {

using plan::Algorithm;
using plan::Operation;

class Parts : public testing::Test {
 protected:
  std::vector<engine::Request> cut(Operation operation, Algorithm algorithm, int64_t count,
                                   size_t scratch_bytes) {
    engine::Request whole;
    whole.operation = plan::name_of(operation);
    whole.plan = std::make_shared<const plan::Plan>(
        plan::make(operation, algorithm, layout_, /*rank=*/1, /*root=*/1));
    whole.dtype = DataType::kFloat32;
    whole.count = count;
    whole.input = input_.data();
    whole.output = output_.data();
    whole.fingerprint = 77;
    std::vector<engine::Request> requests;
    add_in_parts(std::move(whole), layout_, scratch_bytes, &requests);
    return requests;
  }

  plan::Layout layout_ = *plan::Layout::parse("2x2");
  std::vector<std::byte> input_ = std::vector<std::byte>(1 << 16);
  std::vector<std::byte> output_ = std::vector<std::byte>(1 << 16);
};

TEST_F(Parts, EachTakesAsMuchOfEveryBlock) {
  // Four blocks of scratch, 100 elements of each at once.
  const auto parts = cut(Operation::kReduceScatter, Algorithm::kTwoLevel, 1050, 1600);
  ASSERT_EQ(parts.size(), 11u);
  for (size_t i = 0; i < parts.size(); ++i) {
    EXPECT_EQ(parts[i].count, i < 10 ? 100 : 50);
    EXPECT_EQ(parts[i].stride, 1050);
    EXPECT_EQ(parts[i].whole_count, 1050);
    EXPECT_EQ(parts[i].fingerprint, 77u);
    EXPECT_EQ(parts[i].input, input_.data() + i * 400);
    EXPECT_EQ(parts[i].output, output_.data() + i * 400);
  }
}

TEST_F(Parts, OnlyWhatNeedsMoreScratchIsCut) {
  EXPECT_EQ(cut(Operation::kReduceScatter, Algorithm::kTwoLevel, 100, 1600).size(), 1u);
  EXPECT_EQ(cut(Operation::kReduceScatter, Algorithm::kTwoLevel, 100, 1600)[0].stride, 0);
  EXPECT_EQ(cut(Operation::kReduceScatter, Algorithm::kDirect, 4000, 1600).size(), 1u);
  EXPECT_EQ(cut(Operation::kReduce, Algorithm::kChain, 4000, 1600).size(), 10u);
  EXPECT_EQ(cut(Operation::kReduce, Algorithm::kDirect, 4000, 1600).size(), 1u);
  EXPECT_EQ(cut(Operation::kAllReduce, Algorithm::kRecursiveDoubling, 4000, 1600).size(), 10u);
  EXPECT_EQ(cut(Operation::kAllReduce, Algorithm::kRing, 4000, 1600).size(), 1u);
  // It takes ranges of blocks, which are not one after another in a part.
  EXPECT_EQ(cut(Operation::kAllGather, Algorithm::kBruck, 4000, 1600).size(), 1u);
  EXPECT_EQ(cut(Operation::kReduceScatter, Algorithm::kRing, 2, 1).size(), 2u);
}

TEST_F(Parts, NoneNeedsMoreThanABlockForEachRank) {
  for (const char* text : {"1", "5", "2x2", "3+1", "4x3"}) {
    const plan::Layout layout = *plan::Layout::parse(text);
    for (const Operation operation :
         {Operation::kAllReduce, Operation::kReduce, Operation::kBroadcast, Operation::kAllGather,
          Operation::kReduceScatter, Operation::kAllToAll, Operation::kGather,
          Operation::kScatter}) {
      for (const Algorithm algorithm : plan::algorithms_for(operation)) {
        if (!plan::works_in_parts(operation, algorithm)) continue;
        EXPECT_LE(plan::scratch_blocks(operation, algorithm, layout), layout.size())
            << text << " " << plan::name_of(operation) << " " << plan::name_of(algorithm);
      }
    }
  }
}

TEST_F(Parts, UnevenCountsAreNot) {
  engine::Request whole;
  whole.operation = plan::name_of(Operation::kReduceScatter);
  whole.plan = std::make_shared<const plan::Plan>(
      plan::make(Operation::kReduceScatter, Algorithm::kTwoLevel, layout_, 0, 0));
  whole.count = 100'000;
  whole.counts = std::make_shared<const plan::Counts>();
  std::vector<engine::Request> requests;
  add_in_parts(std::move(whole), layout_, 1600, &requests);
  EXPECT_EQ(requests.size(), 1u);
}

}  // namespace
}  // namespace ciuic::collective
