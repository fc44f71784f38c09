// SPDX-License-Identifier: Apache-2.0
// prover_test.cc: proves every algorithm for 1..17 ranks, on layouts of all kinds, for all roots.

#include "plan/prover.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>

#include "plan/plan_cases.h"
#include "plan/symbolic.h"

namespace ciuic::plan {
namespace {

class ProverTest : public testing::TestWithParam<int> {};

TEST_P(ProverTest, EveryPlanIsProved) {
  int cases = 0;
  for (const PlanCase& plan_case : cases_of(GetParam())) {
    const Status status = prove(plan_case.claim(), plan_case.plans());
    ASSERT_TRUE(status.ok()) << plan_case.text() << ": " << status.message();
    ++cases;
  }
  ASSERT_GT(cases, 0);
  std::printf("prover cases %d (%d ranks)\n", cases, GetParam());
}

INSTANTIATE_TEST_SUITE_P(Ranks, ProverTest, testing::Range(1, 18));

// What the registry says of algorithms, the plans of all ranks bear out.
TEST(RegistryTest, ScratchAndPartsAreAsSaid) {
  int in_parts = 0;
  for (const int size : {1, 2, 3, 5, 8, 13}) {
    for (const PlanCase& plan_case : cases_of(size)) {
      const int64_t most =
          scratch_blocks(plan_case.operation, plan_case.algorithm, plan_case.layout);
      const bool parts = works_in_parts(plan_case.operation, plan_case.algorithm);
      in_parts += parts ? 1 : 0;
      for (const Plan& plan : plan_case.plans()) {
        int first = 0, end = 0;
        for (const Step& step : plan.steps) {
          for (const BlockRange& range : {step.source, step.target}) {
            const Partition& partition = plan.partitions[static_cast<int>(range.space)];
            if (range.count == 0) continue;
            if (range.space != Space::kScratch) {
              EXPECT_TRUE(!parts || partition.unit == Partition::Unit::kSplit || range.count == 1)
                  << plan_case.text();
              continue;
            }
            first = end == 0 ? range.first : std::min(first, range.first);
            end = std::max(end, range.first + range.count);
          }
        }
        constexpr int kCount = 10'000;
        if (plan_case.operation == Operation::kBarrier) continue;
        EXPECT_LE(plan.elements(scratches(first, end - first), kCount).size, most * kCount)
            << plan_case.text();
      }
    }
  }
  EXPECT_GT(in_parts, 0);
}

TEST(RoundingTest, HostsAreFoldedOnce) {
  for (int size = 2; size <= 9; ++size) {
    for (const Layout& layout : layouts_of(size)) {
      for (const Algorithm algorithm :
           {Algorithm::kTwoLevel, Algorithm::kTwoLevelSharded, Algorithm::kTwoLevelRing}) {
        const PlanCase plan_case{Operation::kAllReduce, algorithm, layout, 0};
        EXPECT_TRUE(rounds_once_a_host(plan_case.claim(), plan_case.plans(), layout))
            << plan_case.text();
      }
      const PlanCase reduce{Operation::kReduce, Algorithm::kTwoLevel, layout, size - 1};
      EXPECT_TRUE(rounds_once_a_host(reduce.claim(), reduce.plans(), layout)) << reduce.text();
    }
    const Layout one_host = Layout::one_host(size);
    for (const Algorithm algorithm : {Algorithm::kOneShot, Algorithm::kTwoShot}) {
      const PlanCase plan_case{Operation::kAllReduce, algorithm, one_host, 0};
      EXPECT_TRUE(rounds_once_a_host(plan_case.claim(), plan_case.plans(), one_host));
    }
    const PlanCase ring{Operation::kAllReduce, Algorithm::kRing, one_host, 0};
    EXPECT_EQ(rounds_once_a_host(ring.claim(), ring.plans(), one_host), size == 2);
  }
}

}  // namespace
}  // namespace ciuic::plan
