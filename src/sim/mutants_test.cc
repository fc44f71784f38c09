// SPDX-License-Identifier: Apache-2.0
// mutants_test.cc: the simulator catches what it is there to catch. Each mutant is a fault planted
// in one channel of a run that is sound without it.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdio>

#include "sim/simulation.h"

namespace ciuic::sim {
namespace {

// A mutant shows only where the run sends what it changes, so several seeds have to show it.
constexpr uint64_t kMostSeeds = 400;
constexpr int kEnough = 4;

bool needs_streams(Mutant mutant) {
  return mutant == Mutant::kCompletionEarly || mutant == Mutant::kPlacedEarly;
}

bool needs_slots(Mutant mutant) { return mutant == Mutant::kSlotReusedEarly; }

Scenario draw(uint64_t seed, Mutant mutant) {
  Random random(seed ^ 0x5eed);
  ScenarioOptions options;
  options.ranks_min = 2;
  options.ranks_max = 6;
  options.fault_percent = 0;
  options.calls_max = 12;
  Scenario scenario = draw_scenario(seed, options);
  if (needs_streams(mutant)) scenario.network.stream_percent = 100;
  if (mutant == Mutant::kCompletionEarly) {
    for (Pace& pace : scenario.paces) pace.trims = false;  // what is given back stays readable
  }
  if (needs_slots(mutant)) {
    scenario.network.stream_percent = 0;
    for (GroupScenario& group : scenario.groups) {
      group.layout = plan::Layout::one_host(group.layout.size());
    }
  }
  const auto processes = static_cast<int>(scenario.paces.size());
  scenario.network.mutant_from = static_cast<int>(random.between(0, processes - 1));
  scenario.network.mutant_to =
      (scenario.network.mutant_from + static_cast<int>(random.between(1, processes - 1))) %
      processes;
  scenario.network.mutant_after = static_cast<int>(random.between(0, 3));
  return scenario;
}

TEST(Mutants, AreCaught) {
  int caught = 0;
  for (int number = 1; number < kMutants; ++number) {
    const auto mutant = static_cast<Mutant>(number);
    int failed = 0;
    std::string first;
    uint64_t seed = 0;
    while (seed < kMostSeeds && failed < kEnough) {
      ++seed;
      Scenario scenario = draw(seed, mutant);
      scenario.network.mutant = mutant;
      const Outcome outcome = simulate(scenario);
      if (outcome.ok()) continue;
      scenario.network.mutant = Mutant::kNone;
      const Outcome sound = simulate(scenario);
      ASSERT_TRUE(sound.ok()) << "seed " << seed << ": " << sound.failures.front();
      if (++failed == 1) first = outcome.failures.front();
    }
    std::printf("%-18s caught by %d of %d seeds; first: %s\n", name_of(mutant), failed,
                static_cast<int>(seed), first.substr(0, 160).c_str());
    EXPECT_EQ(failed, kEnough) << name_of(mutant);
    if (failed == kEnough) ++caught;
  }
  std::printf("mutants caught %d of %d\n", caught, kMutants - 1);
}

}  // namespace
}  // namespace ciuic::sim
