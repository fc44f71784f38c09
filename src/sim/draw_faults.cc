// SPDX-License-Identifier: Apache-2.0
// draw_faults.cc: faults of every kind, at any time.

#include "sim/draw_faults.h"

#include <algorithm>

namespace ciuic::sim {
namespace {

constexpr TimeNs kMs = 1'000'000;

// Waiting costs a run little; it is the events that do.
constexpr int64_t kPatientMs = 20'000;

std::optional<Call> of_other_operation(const Call& call) {
  Call other = call;
  const int next = (static_cast<int>(call.operation) + 1) % plan::kOperations;
  other.operation = static_cast<plan::Operation>(next);
  other.pattern = -1;
  other.gap = 0;
  other.algorithm = plan::algorithms_for(other.operation).front();
  return other;
}

std::optional<Call> of_other_dtype(const Call& call) {
  Call other = call;
  for (int i = 1; i < kDataTypes; ++i) {
    const int next = (static_cast<int>(call.values.dtype) + i) % kDataTypes;
    other.values.dtype = static_cast<DataType>(next);
    if (is_reducible(other.values.dtype, call.values.op)) return other;
  }
  return std::nullopt;
}

std::optional<Call> of_other_op(const Call& call) {
  Call other = call;
  for (int i = 1; i < kReduceOps; ++i) {
    const int next = (static_cast<int>(call.values.op) + i) % kReduceOps;
    other.values.op = static_cast<ReduceOp>(next);
    if (is_reducible(call.values.dtype, other.values.op)) return other;
  }
  return std::nullopt;
}

// The call at which a rank that shall be mistaken is so; false: there is none in the group.
bool draw_other_call(Random* random, const GroupScenario& group, Fault* fault) {
  const size_t calls = group.calls.size();
  const size_t first = random->next() % calls;
  const auto kind = static_cast<int>(random->next() % kOtherCalls);
  for (size_t i = 0; i < calls * kOtherCalls; ++i) {
    fault->call = (first + i / kOtherCalls) % calls;
    fault->lie = (kind + static_cast<int>(i)) % kOtherCalls;
    const Call& call = group.calls[fault->call];
    const auto lie = static_cast<OtherCall>(fault->lie);
    if (lie != OtherCall::kOrder) {
      if (otherwise(call, lie, static_cast<int>(group.processes.size()))) return true;
    } else if (fault->call + 1 < calls && !look_alike(call, group.calls[fault->call + 1])) {
      return true;
    }
  }
  return false;
}

FaultKind draw_kind(Random* random, const Scenario& scenario, FaultKind only) {
  if (!scenario.is_arbitrated) {
    return random->chance(50) ? FaultKind::kStopped : FaultKind::kCutData;
  }
  if (only != FaultKind::kNone) return only;
  return static_cast<FaultKind>(random->between(1, kFaultKinds - 1));
}

// The hub, rank 0, is a victim more often than others.
void draw_who(Random* random, const Scenario& scenario, Fault* fault) {
  const auto processes = static_cast<int>(scenario.paces.size());
  const std::vector<int>& members =
      scenario.groups[static_cast<size_t>(std::max(0, fault->group))].processes;
  const int hub = members[0];
  fault->victim = random->chance(25) ? hub : members[random->next() % members.size()];
  if (!fault->cuts() && !fault->drops()) return;
  if (random->chance(30)) return;
  fault->other =
      (fault->victim + 1 + static_cast<int>(random->next() % (processes - 1))) % processes;
  if (fault->hits_control() && fault->victim != hub && fault->other != hub) fault->other = hub;
}

// False: such a fault cannot be in this scenario.
bool draw_one(Random* random, FaultKind kind, Scenario* scenario, Fault* fault) {
  fault->kind = kind;
  fault->at = random->chance(50) ? random->spread(1000, 3 * kMs) : random->between(0, kMs);
  fault->loses = random->chance(50);
  const bool of_group = kind == FaultKind::kNeverCalls || kind == FaultKind::kCallsLate ||
                        kind == FaultKind::kCallsOtherwise || kind == FaultKind::kBadMessage ||
                        kind == FaultKind::kBadControl || kind == FaultKind::kAborts ||
                        kind == FaultKind::kClosesEarly;
  if (of_group) fault->group = static_cast<int>(random->next() % scenario->groups.size());
  draw_who(random, *scenario, fault);
  const GroupScenario& group = scenario->groups[static_cast<size_t>(std::max(0, fault->group))];
  switch (kind) {
    case FaultKind::kPaused: fault->until = fault->at + random->spread(kMs, 3000 * kMs); break;
    case FaultKind::kCallsLate:
      fault->until = random->spread(kMs, 3 * scenario->timeout_ms * kMs);
      fault->call = random->next() % group.calls.size();
      break;
    case FaultKind::kNeverCalls: fault->call = random->next() % group.calls.size(); break;
    case FaultKind::kCallsOtherwise: return draw_other_call(random, group, fault);
    case FaultKind::kBadMessage:
      fault->lie = static_cast<int>(random->next() % kBadMessages);
      fault->call = static_cast<size_t>(random->spread(1, 40) - 1);
      break;
    case FaultKind::kBadControl:
      fault->lie = static_cast<int>(random->next() % kBadControls);
      break;
    case FaultKind::kExited:
      fault->at = random->chance(50) ? 0 : random->spread(1, kMs);
      scenario->paces[static_cast<size_t>(fault->victim)].closes_early = false;
      break;
    case FaultKind::kShortTimeout: scenario->is_patient = false; break;
    default: break;
  }
  return true;
}

void draw_time_outs(Random* random, Scenario* scenario) {
  scenario->is_patient = random->chance(60);
  scenario->timeout_ms = scenario->is_patient ? kPatientMs : random->spread(10, 400);
  if (scenario->is_patient || random->chance(60)) return;
  for (GroupScenario& group : scenario->groups) {
    for (Call& call : group.calls) {
      if (random->chance(30)) call.timeout_ms = random->spread(1, 200);
    }
  }
}

}  // namespace

std::optional<Call> otherwise(const Call& call, OtherCall lie, int ranks) {
  if (call.random_plan != nullptr) return std::nullopt;
  if (lie == OtherCall::kOperation) return of_other_operation(call);
  if (call.operation == plan::Operation::kBarrier) return std::nullopt;
  Call other = call;
  switch (lie) {
    case OtherCall::kDtype: return of_other_dtype(call);
    case OtherCall::kCount:
      if (call.pattern >= 0) return std::nullopt;  // ranks' counts differ as it is
      ++other.count;
      return other;
    case OtherCall::kOp: return plan::reduces(call.operation) ? of_other_op(call) : std::nullopt;
    case OtherCall::kRoot:
      if (!plan::has_root(call.operation) || ranks < 2) return std::nullopt;
      other.root = (call.root + 1) % ranks;
      return other;
    default: return std::nullopt;
  }
}

void draw_faults(Random* random, const ScenarioOptions& options, Scenario* scenario) {
  scenario->control.latency_max = random->spread(1000, 2 * kMs);
  scenario->control.step_max = random->spread(1, 200'000);
  scenario->shrinks = random->chance(50);
  scenario->is_patient = true;
  if (scenario->paces.size() < 2 || !random->chance(options.fault_percent)) return;
  draw_time_outs(random, scenario);
  const int faults = options.only == FaultKind::kNone && random->chance(15) ? 2 : 1;
  for (int i = 0; i < faults; ++i) {
    Fault fault;
    const FaultKind kind = draw_kind(random, *scenario, options.only);
    if (scenario->has(kind) || !draw_one(random, kind, scenario, &fault)) continue;
    scenario->faults.push_back(fault);
  }
  if (scenario->has(FaultKind::kShortTimeout)) scenario->timeout_ms = random->spread(1, 8) - 1;
}

}  // namespace ciuic::sim
