// SPDX-License-Identifier: Apache-2.0
// bugs_test.cc: the judgement catches what it is there to catch. Each bug is planted in the control
// plane or around the engine, and shows under one kind of fault; the same runs are sound without
// it.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdio>

#include "sim/simulation.h"

namespace ciuic::sim {
namespace {

constexpr uint64_t kMostSeeds = 400;
constexpr int kEnough = 3;

// The fault that brings a bug to light.
FaultKind fault_for(Bug bug) {
  switch (bug) {
    case Bug::kNone:
    case Bug::kStagingKept: return FaultKind::kNone;
    case Bug::kDecisionLost:
    case Bug::kIdleNotTold:
    case Bug::kDecisionDiffers:
    case Bug::kDecisionOfOtherCode:
    case Bug::kDecisionNamesOther:
    case Bug::kEndsTwice:
    case Bug::kGoneNotTold:
    case Bug::kDeathUnseen:
    case Bug::kWritesLate:
    case Bug::kEndsWell:
    case Bug::kOtherError:
    case Bug::kErrorForgotten:
    case Bug::kSurvivorMisled: return FaultKind::kKilled;
    case Bug::kGoneIsEnd: return FaultKind::kExited;
    case Bug::kSilenceUnseen: return FaultKind::kStopped;
    case Bug::kHeartbeatsLost:
    case Bug::kAnswersLost: return FaultKind::kNeverCalls;
    case Bug::kHubEndUnseen: return FaultKind::kCutControl;
    case Bug::kCutUnseen: return FaultKind::kCutData;
    case Bug::kLeaveNotTold: return FaultKind::kClosesEarly;
    case Bug::kCauseIgnored:
    case Bug::kAbortIgnored: return FaultKind::kAborts;
    case Bug::kDeadlineEarly:
    case Bug::kDeadlineIgnored: return FaultKind::kShortTimeout;
    case Bug::kFingerprintAlike: return FaultKind::kCallsOtherwise;
  }
  return FaultKind::kNone;
}

Scenario draw(uint64_t seed, Bug bug) {
  ScenarioOptions options;
  options.ranks_min = 2;
  options.ranks_max = 6;
  options.calls_max = 20;
  options.only = fault_for(bug);
  options.fault_percent = options.only == FaultKind::kNone ? 0 : 100;
  return draw_scenario(seed, options);
}

TEST(Bugs, AreCaught) {
  int caught = 0;
  for (int number = 1; number < kBugs; ++number) {
    const auto bug = static_cast<Bug>(number);
    int failed = 0;
    std::string first;
    uint64_t seed = 0;
    while (seed < kMostSeeds && failed < kEnough) {
      ++seed;
      Scenario scenario = draw(seed, bug);
      scenario.bug = bug;
      const Outcome outcome = simulate(scenario);
      if (outcome.ok()) continue;
      scenario.bug = Bug::kNone;
      const Outcome sound = simulate(scenario);
      ASSERT_TRUE(sound.ok()) << "seed " << seed << ": " << scenario.text() << ": "
                              << sound.failures.front();
      if (++failed == 1) first = outcome.failures.front();
    }
    std::printf("%-22s %-16s caught by %d of %d seeds; first: %s\n", name_of(bug),
                name_of(fault_for(bug)), failed, static_cast<int>(seed),
                first.substr(0, 160).c_str());
    EXPECT_EQ(failed, kEnough) << name_of(bug);
    if (failed == kEnough) ++caught;
  }
  std::printf("bugs caught %d of %d\n", caught, kBugs - 1);
}

}  // namespace
}  // namespace ciuic::sim
