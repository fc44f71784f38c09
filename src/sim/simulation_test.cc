// SPDX-License-Identifier: Apache-2.0
// simulation_test.cc: the engine under some hundred seeds. `ciuic_sim` runs more of them, and
// replays one.

#include "sim/simulation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace ciuic::sim {
namespace {

std::string all_of(const Scenario& scenario, const Outcome& outcome) {
  std::string text = "seed " + std::to_string(scenario.seed) + ": " + scenario.text();
  for (const std::string& failure : outcome.failures) text += "\n  " + failure;
  return text;
}

struct Totals {
  int ok = 0;
  int ended = 0;
};

Totals run(uint64_t first, uint64_t seeds, const ScenarioOptions& options) {
  Totals totals;
  for (uint64_t seed = first; seed < first + seeds; ++seed) {
    const Scenario scenario = draw_scenario(seed, options);
    const Outcome outcome = simulate(scenario);
    EXPECT_TRUE(outcome.ok()) << all_of(scenario, outcome);
    totals.ok += outcome.operations_ok;
    totals.ended += outcome.operations_ended;
  }
  return totals;
}

TEST(Simulation, WithoutFaults) {
  ScenarioOptions options;
  options.fault_percent = 0;
  options.ranks_max = 10;
  const Totals totals = run(1000, 150, options);
  EXPECT_GT(totals.ok, 1000);
  EXPECT_EQ(totals.ended, 0);
}

TEST(Simulation, WithFaultsOfAnyKind) {
  ScenarioOptions options;
  options.fault_percent = 100;
  options.ranks_min = 2;
  options.ranks_max = 12;
  const Totals totals = run(2000, 300, options);
  EXPECT_GT(totals.ok, 1000);
  EXPECT_GT(totals.ended, 1000);
}

// Each kind comes about, and most of them end operations in an error.
TEST(Simulation, WithEachKindOfFault) {
  for (int number = 1; number < kFaultKinds; ++number) {
    ScenarioOptions options;
    options.fault_percent = 100;
    options.ranks_min = 2;
    options.ranks_max = 8;
    options.only = static_cast<FaultKind>(number);
    const Totals totals = run(7000, 25, options);
    EXPECT_GT(totals.ok, 0) << name_of(options.only);
    const bool is_harmless = options.only == FaultKind::kExited;
    EXPECT_GT(totals.ended, is_harmless ? -1 : 0) << name_of(options.only);
  }
}

TEST(Simulation, OneRank) {
  ScenarioOptions options;
  options.ranks_max = 1;
  EXPECT_GT(run(3000, 20, options).ok, 20);
}

TEST(Simulation, TwoRanks) {
  ScenarioOptions options;
  options.ranks_min = options.ranks_max = 2;
  options.calls_max = 80;
  EXPECT_GT(run(4000, 60, options).ok, 100);
}

TEST(Simulation, ManyRanks) {
  ScenarioOptions options;
  options.ranks_min = 40;
  options.ranks_max = 64;
  options.calls_max = 4;
  EXPECT_GT(run(5000, 3, options).ok, 0);
}

plan::PlanFile file_of(plan::Operation operation, plan::Algorithm algorithm) {
  plan::PlanFile file{operation, plan::Layout({0, 0, 1, 1, 1}), /*root=*/2, {}};
  for (int rank = 0; rank < file.layout.size(); ++rank) {
    file.plans.push_back(plan::make(operation, algorithm, file.layout, rank, file.root));
  }
  return file;
}

TEST(Simulation, PlansOfFiles) {
  for (int number = 0; number < plan::kOperations; ++number) {
    const auto operation = static_cast<plan::Operation>(number);
    for (const plan::Algorithm algorithm : plan::algorithms_for(operation)) {
      const plan::PlanFile file = file_of(operation, algorithm);
      for (uint64_t seed = 8000; seed < 8004; ++seed) {
        const Scenario scenario = draw_plan_scenario(seed, file);
        const Outcome outcome = simulate(scenario);
        EXPECT_TRUE(outcome.ok()) << scenario.text() << ": " << outcome.failures[0];
        EXPECT_GE(outcome.operations_ok, 5) << scenario.text();
      }
    }
  }
}

// One rank keeps the sum to itself.
TEST(Simulation, WrongPlansOfFiles) {
  plan::PlanFile file = file_of(plan::Operation::kAllReduce, plan::Algorithm::kOneShot);
  file.plans[3].steps.pop_back();
  file.plans[3].finish();
  int failed = 0;
  for (uint64_t seed = 8100; seed < 8110; ++seed) {
    const Outcome outcome = simulate(draw_plan_scenario(seed, file));
    if (outcome.ok()) continue;  // nothing was called that has elements
    EXPECT_NE(outcome.failures[0].find("rank 3"), std::string::npos) << outcome.failures[0];
    ++failed;
  }
  EXPECT_GT(failed, 5);
}

TEST(Simulation, ReplaysExactly) {
  for (uint64_t seed = 6000; seed < 6010; ++seed) {
    const Scenario scenario = draw_scenario(seed, {});
    const Outcome first = simulate(scenario);
    const Outcome second = simulate(draw_scenario(seed, {}));
    EXPECT_EQ(first.digest, second.digest) << seed;
    EXPECT_EQ(first.steps, second.steps) << seed;
    EXPECT_EQ(first.ended_at, second.ended_at) << seed;
  }
}

}  // namespace
}  // namespace ciuic::sim
