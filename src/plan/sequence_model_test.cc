// SPDX-License-Identifier: Apache-2.0
// sequence_model_test.cc: three operations one after another, the same and different ones, with a
// rank that is slow, under the tightest flow control that the engine could have.

#include "plan/sequence_model.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <random>

#include "plan/plan_cases.h"

namespace ciuic::plan {
namespace {

class SequenceTest : public testing::TestWithParam<int> {};

Status run(const std::vector<PlanCase>& cases, const SequenceSetup& setup) {
  std::vector<std::vector<Plan>> operations;
  for (const PlanCase& plan_case : cases) operations.push_back(plan_case.plans());
  return run_sequence(cases.front().layout, operations, setup);
}

// Single messages and chunks: the eager way. Several: the announced way.
SequenceSetup setup_of(int size, uint64_t seed) {
  SequenceSetup setup;
  setup.seed = seed;
  setup.chunks = 1 + static_cast<int>(seed % 2);
  setup.slots = 1 + static_cast<int>(seed / 2 % 2);
  setup.eager_operations = 2 + 2 * static_cast<int>(seed / 4 % 2);
  setup.slow_rank = static_cast<int>(seed % (size + 1)) - 1;
  return setup;
}

TEST_P(SequenceTest, ThreeOfTheSame) {
  const int size = GetParam();
  int sequences = 0;
  uint64_t seed = 1;
  for (const PlanCase& plan_case : cases_of(size)) {
    if (plan_case.root != 0 && plan_case.root != size / 2) continue;
    const SequenceSetup setup = setup_of(size, ++seed);
    const Status status = run({plan_case, plan_case, plan_case}, setup);
    ASSERT_TRUE(status.ok()) << plan_case.text() << ", seed " << seed << ": " << status.message();
    ++sequences;
  }
  std::printf("prover sequences %d (%d ranks, the same)\n", sequences, size);
}

TEST_P(SequenceTest, ThreeDifferent) {
  const int size = GetParam();
  std::mt19937_64 random(size);
  const std::vector<PlanCase> cases = cases_of(size);
  int sequences = 0;
  for (const Layout& layout : layouts_of(size)) {
    std::vector<PlanCase> here;
    for (const PlanCase& plan_case : cases) {
      if (plan_case.layout == layout) here.push_back(plan_case);
    }
    for (int round = 0; round < 40; ++round) {
      std::vector<PlanCase> three;
      std::string text;
      for (int operation = 0; operation < 3; ++operation) {
        three.push_back(here[random() % here.size()]);
        text += three.back().text() + "; ";
      }
      const uint64_t seed = random();
      const Status status = run(three, setup_of(size, seed));
      ASSERT_TRUE(status.ok()) << text << "seed " << seed << ": " << status.message();
      ++sequences;
    }
  }
  std::printf("prover sequences %d (%d ranks, different)\n", sequences, size);
}

// The relation that SequenceSetup::eager_operations asks for is needed.
TEST(SequenceModelTest, TooFewEagerMessagesDeadlock) {
  const Layout layout = *Layout::parse("4x1");
  const PlanCase broadcast{Operation::kBroadcast, Algorithm::kBinomial, layout, 0};
  const PlanCase gather{Operation::kAllGather, Algorithm::kRing, layout, 0};
  SequenceSetup setup;
  setup.chunks = 1;
  int deadlocks = 0;
  for (setup.seed = 1; setup.seed <= 50; ++setup.seed) {
    setup.eager_operations = 1;
    const Status status = run({broadcast, gather, broadcast}, setup);
    EXPECT_TRUE(status.ok() || status.message().find("deadlock") != std::string::npos);
    deadlocks += status.ok() ? 0 : 1;
    setup.eager_operations = 2;
    EXPECT_TRUE(run({broadcast, gather, broadcast}, setup).ok());
  }
  EXPECT_GT(deadlocks, 0);
}

INSTANTIATE_TEST_SUITE_P(Ranks, SequenceTest, testing::Values(1, 2, 3, 4, 5, 7, 8, 12));

}  // namespace
}  // namespace ciuic::plan
