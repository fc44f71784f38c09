// SPDX-License-Identifier: Apache-2.0
// engine_flow_test.cc: the engine's flow control and edges, each driven to its limit by a scenario
// made for it.

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "sim/simulation.h"

namespace ciuic::sim {
namespace {

// Lively connections, brisk ranks that wait for each of their operations, no calls yet.
Scenario quiet(uint64_t seed, int ranks, const plan::Layout& layout) {
  Scenario scenario;
  scenario.seed = seed;
  scenario.paces.resize(ranks);
  for (Pace& pace : scenario.paces) pace.trims = true;
  scenario.network.stall_percent = 0;
  scenario.network.late_percent = 0;
  scenario.network.stream_percent = 0;
  GroupScenario group;
  for (int rank = 0; rank < ranks; ++rank) group.processes.push_back(rank);
  group.layout = layout;
  scenario.groups.push_back(group);
  return scenario;
}

plan::Layout apart(int ranks) {
  std::vector<int> hosts(ranks);
  for (int rank = 0; rank < ranks; ++rank) hosts[rank] = rank;
  return plan::Layout(hosts);
}

Call call_of(plan::Operation operation, plan::Algorithm algorithm, int ranks, int64_t count,
             uint64_t seed) {
  Call call;
  call.operation = operation;
  call.algorithm = algorithm;
  call.values = {DataType::kInt32, ReduceOp::kSum, ranks, seed};
  call.count = count;
  return call;
}

void expect_ok(const Scenario& scenario, const std::string& what) {
  const Outcome outcome = simulate(scenario);
  std::string failures;
  for (const std::string& failure : outcome.failures) failures += "\n  " + failure;
  EXPECT_TRUE(outcome.ok()) << what << ", seed " << scenario.seed << failures;
  size_t calls = 0;
  for (const GroupScenario& group : scenario.groups) {
    calls += group.calls.size() * group.processes.size();
  }
  EXPECT_EQ(outcome.operations_ok, static_cast<int>(calls)) << what;
}

// Every operation by every algorithm, in groups of several sizes and layouts.
template <typename Change>
void sweep(const std::vector<int64_t>& counts, Change change) {
  uint64_t seed = 1;
  for (const int ranks : {1, 2, 3, 5, 6}) {
    for (int layout = 0; layout < 3; ++layout) {
      std::vector<int> hosts(ranks);
      for (int rank = 0; rank < ranks; ++rank) hosts[rank] = rank * layout / 2;
      Scenario scenario = quiet(++seed, ranks, plan::Layout(hosts));
      for (int o = 0; o < plan::kOperations; ++o) {
        const auto operation = static_cast<plan::Operation>(o);
        for (const plan::Algorithm algorithm : plan::algorithms_for(operation)) {
          for (const int64_t count : counts) {
            Call call = call_of(operation, algorithm, ranks, count, ++seed);
            call.root = static_cast<int>(seed) % ranks;
            call.in_place = seed % 2 == 0;
            scenario.groups[0].calls.push_back(call);
          }
        }
      }
      change(&scenario);
      expect_ok(scenario, std::to_string(ranks) + " ranks, layout " + std::to_string(layout));
    }
  }
}

TEST(EngineFlow, NoElements) {
  sweep({0}, [](Scenario*) {});
}

// Fewer elements than ranks, and blocks of different sizes that end in the middle of a chunk.
TEST(EngineFlow, UnequalBlocksAndChunks) {
  sweep({1, 2, 4, 7, 13}, [](Scenario* scenario) {
    for (Call& call : scenario->groups[0].calls) call.chunk_bytes = 8;
  });
}

TEST(EngineFlow, WindowOfOneChunk) {
  sweep({40}, [](Scenario* scenario) {
    scenario->groups[0].window = 1;
    for (Call& call : scenario->groups[0].calls) call.chunk_bytes = 12;
  });
}

TEST(EngineFlow, MessagesOverTheEagerLimit) {
  sweep({engine::kEagerBytes / 4 + 1, 17'000}, [](Scenario* scenario) {
    for (Call& call : scenario->groups[0].calls) call.chunk_bytes = 64 * 1024;
  });
}

// All are called at once: eight run, the others wait their turn.
TEST(EngineFlow, ManyOperationsAtOnce) {
  sweep({9, 3}, [](Scenario* scenario) {
    for (Pace& pace : scenario->paces) pace.in_flight = 1000;
    for (Call& call : scenario->groups[0].calls) call.chunk_bytes = 16;
  });
}

TEST(EngineFlow, SequenceNumbersWrap) {
  sweep({5}, [](Scenario* scenario) {
    scenario->groups[0].first_sequence = 0u - 10u;
    for (Pace& pace : scenario->paces) pace.in_flight = 40;
  });
}

// The root hears nothing from the leaf but what it says of its own accord, and must neither run it
// over nor wait for ever.
TEST(EngineFlow, AFastRootAndASlowLeaf) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Scenario scenario = quiet(seed, 2, seed % 2 == 0 ? apart(2) : plan::Layout::one_host(2));
    scenario.paces[0].in_flight = 1000;
    scenario.paces[1].gap_max = 2000;
    scenario.paces[1].first_call = static_cast<TimeNs>(seed) * 10'000;
    for (int i = 0; i < 400; ++i) {
      scenario.groups[0].calls.push_back(call_of(
          plan::Operation::kBroadcast, plan::Algorithm::kDirect, 2, i % 50, seed * 1000 + i));
    }
    expect_ok(scenario, "fast root");
  }
}

// Each rank down a chain may be some operations ahead of the next. So the first is far ahead of the
// last, and then sends to it directly.
TEST(EngineFlow, AheadByMoreThanOneRanksAllowance) {
  for (int relayed = 20; relayed <= 80; relayed += 5) {
    constexpr int kRanks = 8;
    Scenario scenario = quiet(static_cast<uint64_t>(relayed), kRanks, apart(kRanks));
    for (Pace& pace : scenario.paces) pace.in_flight = 1000;
    scenario.paces[kRanks - 1].first_call = 4'000'000;
    for (int i = 0; i < relayed + 20; ++i) {
      const auto algorithm = i < relayed ? plan::Algorithm::kBinomial : plan::Algorithm::kDirect;
      scenario.groups[0].calls.push_back(
          call_of(plan::Operation::kBroadcast, algorithm, kRanks, 3, relayed * 1000 + i));
    }
    expect_ok(scenario, std::to_string(relayed) + " relayed");
  }
}

// A fold waits for its slowest peer, and meanwhile holds the slots of all others.
TEST(EngineFlow, FoldsHoldSlots) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    constexpr int kRanks = 10;
    Scenario scenario = quiet(seed, kRanks, plan::Layout::one_host(kRanks));
    scenario.paces[seed % kRanks].gap_max = 300'000;
    for (Pace& pace : scenario.paces) pace.in_flight = 6;
    for (int i = 0; i < 20; ++i) {
      Call call = call_of(plan::Operation::kAllReduce,
                          i % 2 == 0 ? plan::Algorithm::kOneShot : plan::Algorithm::kTwoShot,
                          kRanks, 500, seed * 100 + i);
      call.chunk_bytes = 256;
      scenario.groups[0].calls.push_back(call);
    }
    expect_ok(scenario, "folds");
  }
}

// Rank 0 has left, with the hub, when rank 2 makes another call than rank 1: one with a message
// that needs leave, which rank 1 never gives, or one that like its own only waits. They tell each
// other.
TEST(EngineFlow, CallsDifferWhereTheHubHasLeft) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    constexpr int kRanks = 3;
    Scenario scenario =
        quiet(seed, kRanks, seed % 2 == 0 ? apart(kRanks) : plan::Layout::one_host(kRanks));
    scenario.network.stream_percent = seed % 3 == 0 ? 100 : 0;
    scenario.paces[0].closes_early = true;
    scenario.paces[2].first_call = 10'000'000;
    Call call = call_of(plan::Operation::kReduce, plan::Algorithm::kDirect, kRanks,
                        engine::kEagerBytes / 4, seed);
    call.root = 1;
    call.chunk_bytes = 64 * 1024;
    scenario.groups[0].calls = {call};
    scenario.faults.push_back({.kind = FaultKind::kKilled, .victim = 0, .at = 5'000'000});
    const auto lie = seed % 4 < 2 ? OtherCall::kCount : OtherCall::kOperation;
    scenario.faults.push_back({.kind = FaultKind::kCallsOtherwise,
                               .victim = 2,
                               .group = 0,
                               .lie = static_cast<int>(lie)});
    const Outcome outcome = simulate(scenario);
    EXPECT_TRUE(outcome.ok()) << "seed " << seed << ": " << outcome.failures.front();
    EXPECT_EQ(outcome.operations_ok, 1) << "seed " << seed << ": rank 0's";
  }
}

// What one group of a process waits for does not keep back another.
TEST(EngineFlow, GroupsInOppositeOrders) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    constexpr int kRanks = 4;
    Scenario scenario = quiet(seed, kRanks, plan::Layout::one_host(kRanks));
    scenario.groups.push_back(scenario.groups[0]);
    std::reverse(scenario.groups[1].processes.begin(), scenario.groups[1].processes.end());
    for (int rank = 0; rank < kRanks; ++rank) {
      scenario.paces[rank].gap_max = rank % 2 == 0 ? 200'000 : 0;
    }
    for (size_t g = 0; g < 2; ++g) {
      for (int i = 0; i < 20; ++i) {
        scenario.groups[g].calls.push_back(call_of(plan::Operation::kAllReduce,
                                                   plan::Algorithm::kRing, kRanks, 4000,
                                                   seed * 100 + i * 2 + g));
      }
    }
    expect_ok(scenario, "two groups");
  }
}

// The first to finish is gone, with and without its goodbye, before the others have.
TEST(EngineFlow, RanksCloseEarly) {
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    constexpr int kRanks = 6;
    Scenario scenario =
        quiet(seed, kRanks, seed % 2 == 0 ? apart(kRanks) : plan::Layout::one_host(kRanks));
    for (Pace& pace : scenario.paces) pace.closes_early = true;
    scenario.groups[0].calls = {
        call_of(plan::Operation::kAllReduce, plan::Algorithm::kRing, kRanks, 3000, seed),
        call_of(plan::Operation::kReduce, plan::Algorithm::kBinomial, kRanks, 3000, seed + 100),
        call_of(plan::Operation::kBroadcast, plan::Algorithm::kBinomial, kRanks, 3000, seed + 200)};
    expect_ok(scenario, "early close");
  }
}

}  // namespace
}  // namespace ciuic::sim
