// SPDX-License-Identifier: Apache-2.0
// prover_test.cc: proves every algorithm for 1..17 ranks, on layouts of all kinds, for all roots.

#include "plan/prover.h"

#include <gtest/gtest.h>

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
