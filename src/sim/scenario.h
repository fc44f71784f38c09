// SPDX-License-Identifier: Apache-2.0
// scenario.h: what happens in one simulated run, all of it drawn from one seed.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "ciuic/dtype.h"
#include "plan/layout.h"
#include "plan/plan_json.h"
#include "plan/registry.h"
#include "sim/bug.h"
#include "sim/fault.h"
#include "sim/random_plan.h"
#include "sim/sim_network.h"
#include "sim/values.h"

namespace ciuic::sim {

// One operation, as all ranks of a group call it.
struct Call {
  plan::Operation operation = plan::Operation::kBarrier;
  plan::Algorithm algorithm = plan::Algorithm::kDirect;
  int root = 0;
  Values values;
  int64_t count = 0;
  size_t chunk_bytes = 4096;
  bool in_place = false;
  int64_t gap = 0;   // elements between blocks, as where the call is a part of a larger one
  int pattern = -1;  // of uneven counts, each times `count` (plan/uneven.h); -1: blocks are alike
  bool is_chosen = false;   // by the tuner, instead of `algorithm` and `chunk_bytes`
  int64_t timeout_ms = -1;  // -1: the communicator's
  std::shared_ptr<const RandomPlan> random_plan;              // instead of an operation
  std::vector<std::shared_ptr<const plan::Plan>> plans = {};  // by rank, instead of `algorithm`'s

  std::string text() const;
};

// Whether errors show the two as different calls.
bool look_alike(const Call& a, const Call& b);

struct GroupScenario {
  std::vector<int> processes;  // by rank
  plan::Layout layout = plan::Layout::one_host(1);
  int window = 4;
  uint32_t first_sequence = 0;
  std::vector<Call> calls;
};

// How fast a process is, and how it waits.
struct Pace {
  TimeNs step_min = 100;  // between steps while something moves
  TimeNs step_max = 1000;
  bool sleeps = true;     // where nothing moves until something happens, else it asks again
  TimeNs first_call = 0;  // it starts late
  TimeNs gap_max = 0;     // between its calls
  int in_flight = 1;      // operations that it has called and not seen the end of, in a group
  bool trims = false;     // gives free staging back before each step, so that the account is exact
  bool closes_early = false;  // a group as soon as its own operations have ended
};

// The control plane's lines, and how soon its threads step.
struct ControlPace {
  TimeNs latency_max = 50'000;
  TimeNs step_max = 20'000;
};

struct Scenario {
  uint64_t seed = 0;
  std::vector<Pace> paces;  // by process
  std::vector<GroupScenario> groups;
  NetworkOptions network;
  ControlPace control;
  int64_t timeout_ms = 1000;  // of the communicators

  // Without, the groups have no control plane, and each rank goes by its own causes.
  bool is_arbitrated = true;

  // There is far more time than the calls need, so that only a fault makes one late.
  bool is_patient = false;

  // After an error the survivors make a new group and go on.
  bool shrinks = false;

  std::vector<Fault> faults;
  Bug bug = Bug::kNone;

  bool has(FaultKind kind) const;
  bool records_calls() const { return has(FaultKind::kCallsOtherwise); }
  std::string text() const;
};

struct ScenarioOptions {
  int ranks_min = 1;
  int ranks_max = 64;
  int fault_percent = 80;
  int calls_max = 40;
  FaultKind only = FaultKind::kNone;  // this kind of fault alone, in every run
};

Scenario draw_scenario(uint64_t seed, const ScenarioOptions& options);

// A file's plans, which are proved, are called some times on its layout, on arrays of any kind, by
// processes of any pace, and without a fault.
Scenario draw_plan_scenario(uint64_t seed, const plan::PlanFile& file);

// A group like those that are drawn; `processes` by rank.
GroupScenario draw_group(Random* random, std::vector<int> processes, int calls);

}  // namespace ciuic::sim
