// SPDX-License-Identifier: Apache-2.0
// scenario.cc: draws scenarios.

#include "sim/scenario.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/engine.h"
#include "plan/uneven.h"
#include "sim/draw_faults.h"

namespace ciuic::sim {
namespace {

plan::Layout draw_layout(Random* random, int size) {
  std::vector<int> host_of(size);
  const int kind = static_cast<int>(random->between(0, 3));
  const int64_t hosts = random->between(1, std::max(1, size / 2));
  for (int rank = 0; rank < size; ++rank) {
    if (kind == 0) host_of[rank] = 0;
    if (kind == 1) host_of[rank] = rank;
    if (kind == 2) host_of[rank] = static_cast<int>(rank * hosts / size);
    if (kind == 3) host_of[rank] = static_cast<int>(random->between(0, hosts - 1));
  }
  return plan::Layout(host_of);
}

// Beyond so many ranks, calls are those of a program, not of whoever wants to break the engine: a
// million pairs of ranks take their time.
constexpr int kLargeGroup = 256;

// How much, in what chunks, and where; of whichever operation.
Call draw_extent(Random* random, int size) {
  Call call;
  call.values.seed = random->next();
  call.values.ranks = size;
  call.chunk_bytes = static_cast<size_t>(random->spread(8, 4096));
  // Some messages are of no, one, or two chunks and a bit; some of more than the eager limit.
  const auto elements = static_cast<int64_t>(call.chunk_bytes) / 8;
  switch (random->between(0, 9)) {
    case 0: call.count = 0; break;
    case 1: call.count = random->between(1, 3); break;
    case 2: call.count = random->between(std::max(0, size - 1), size + 1); break;
    case 3:
      call.chunk_bytes = static_cast<size_t>(random->spread(engine::kEagerBytes, kSimMaxPayload));
      call.count = random->spread(1, 12'000);
      break;
    default: call.count = random->spread(1, 12 * std::max<int64_t>(elements, 1)); break;
  }
  if (size > kLargeGroup) call.count = std::min<int64_t>(call.count, elements);  // in one chunk
  call.in_place = random->chance(40);
  call.root = static_cast<int>(random->between(0, size - 1));
  return call;
}

void draw_elements(Random* random, Values* values) {
  do {
    values->dtype = static_cast<DataType>(random->between(0, kDataTypes - 1));
    values->op = static_cast<ReduceOp>(random->between(0, kReduceOps - 1));
  } while (!is_reducible(values->dtype, values->op));
}

Call draw_call(Random* random, const plan::Layout& layout) {
  const int size = layout.size();
  const bool is_large = size > kLargeGroup;
  Call call = draw_extent(random, size);
  if (random->chance(15) && !is_large) {
    call.values.dtype = DataType::kUInt8;
    call.random_plan = std::make_shared<const RandomPlan>(random_plan(random, size, call.in_place));
    return call;
  }
  call.operation = static_cast<plan::Operation>(random->between(0, plan::kOperations - 1));
  const std::vector<plan::Algorithm> algorithms = plan::algorithms_for(call.operation);
  call.algorithm = algorithms[random->next() % algorithms.size()];
  draw_elements(random, &call.values);
  call.is_chosen = random->chance(30) || is_large;
  if (is_large) return call;
  if (plan::takes_uneven(call.operation, call.algorithm) && random->chance(25)) {
    call.pattern = static_cast<int>(random->between(0, plan::kUnevenPatterns - 1));
  } else if (plan::works_in_parts(call.operation, call.algorithm) && !call.is_chosen &&
             random->chance(25)) {
    call.gap = random->spread(1, 100);
  }
  return call;
}

Pace draw_pace(Random* random) {
  Pace pace;
  pace.step_min = random->spread(50, 500);
  pace.step_max = pace.step_min + random->spread(1, 5000);
  if (random->chance(10)) {  // a slow rank
    pace.step_min = random->spread(10'000, 100'000);
    pace.step_max = pace.step_min + random->spread(1, 300'000);
  }
  pace.sleeps = random->chance(60);
  if (random->chance(15)) pace.first_call = random->spread(1000, 4'000'000);
  if (random->chance(30)) pace.gap_max = random->spread(10, 300'000);
  pace.in_flight = static_cast<int>(random->spread(1, 24));
  pace.trims = random->chance(50);
  pace.closes_early = random->chance(30);
  return pace;
}

// Some of the processes, in any order.
std::vector<int> draw_members(Random* random, int processes) {
  std::vector<int> members;
  for (int process = 0; process < processes; ++process) {
    if (random->chance(70)) members.push_back(process);
  }
  if (members.empty()) members.push_back(0);
  for (size_t i = members.size(); i > 1; --i) {
    std::swap(members[i - 1], members[random->next() % i]);
  }
  return members;
}

}  // namespace

GroupScenario draw_group(Random* random, std::vector<int> processes, int calls) {
  GroupScenario group;
  group.processes = std::move(processes);
  group.layout = draw_layout(random, static_cast<int>(group.processes.size()));
  group.window = static_cast<int>(random->spread(1, 8));
  group.first_sequence = random->chance(50) ? 0 : 0u - static_cast<uint32_t>(random->spread(1, 40));
  // Half of the groups repeat few kinds of calls, as a training loop does: fast ranks then run far
  // ahead of slow ones.
  const bool repeats = random->chance(50);
  std::vector<Call> kinds;
  for (int i = 0; i < 3; ++i) kinds.push_back(draw_call(random, group.layout));
  for (int i = 0; i < calls; ++i) {
    if (!repeats) {
      group.calls.push_back(draw_call(random, group.layout));
      continue;
    }
    Call call = kinds[random->next() % kinds.size()];
    call.values.seed = random->next();
    if (random->chance(20)) call.root = static_cast<int>(random->next() % group.layout.size());
    group.calls.push_back(std::move(call));
  }
  return group;
}

std::string Call::text() const {
  const std::string what = random_plan != nullptr
                               ? "random plan"
                               : fmt::format("{} by {}", plan::name_of(operation),
                                             is_chosen       ? "the tuner's choice"
                                             : plans.empty() ? plan::name_of(algorithm)
                                                             : plans[0]->algorithm.c_str());
  std::string text =
      fmt::format("{}, {} x {} {}, root {}, chunks of {}{}", what, count, name_of(values.dtype),
                  name_of(values.op), root, chunk_bytes, in_place ? ", in place" : "");
  if (pattern >= 0) text += fmt::format(", times uneven counts {}", pattern);
  if (gap > 0) text += fmt::format(", {} between blocks", gap);
  return text;
}

std::string Scenario::text() const {
  std::string text = fmt::format("{} processes", paces.size());
  for (const GroupScenario& group : groups) {
    text += fmt::format("; group of {} on {} hosts, window {}, first sequence {}, {} calls",
                        group.processes.size(), group.layout.hosts(), group.window,
                        group.first_sequence, group.calls.size());
  }
  text += fmt::format("; time-out {} ms{}", timeout_ms, is_arbitrated ? "" : ", no control plane");
  for (const Fault& fault : faults) text += "; " + fault.text();
  if (shrinks && !faults.empty()) text += "; survivors go on";
  if (bug != Bug::kNone) text += fmt::format("; bug {}", name_of(bug));
  return text;
}

bool Scenario::has(FaultKind kind) const {
  return std::any_of(faults.begin(), faults.end(),
                     [kind](const Fault& fault) { return fault.kind == kind; });
}

bool look_alike(const Call& a, const Call& b) {
  if (a.random_plan != nullptr || b.random_plan != nullptr) return true;  // cannot be told
  if (a.operation != b.operation || (a.pattern < 0) != (b.pattern < 0)) return false;
  if (a.operation == plan::Operation::kBarrier) return true;
  return a.values.dtype == b.values.dtype && a.count == b.count &&
         (!plan::reduces(a.operation) || a.values.op == b.values.op) &&
         (!plan::has_root(a.operation) || a.root == b.root);
}

// Small groups are the most frequent.
static int draw_size(Random* random, const ScenarioOptions& options) {
  const int64_t size = random->spread(options.ranks_min, options.ranks_max);
  if (random->chance(15)) return static_cast<int>(size);
  return static_cast<int>(std::min(size, random->spread(options.ranks_min, options.ranks_max)));
}

// Large groups cost by the square.
static int draw_calls(Random* random, int processes, int calls_max) {
  const int most = std::max(2, calls_max * 12 / std::max(12, processes * processes / 12));
  return static_cast<int>(random->spread(1, std::min(most, calls_max)));
}

static std::vector<int> draw_processes(Random* random, int processes, Scenario* scenario) {
  std::vector<int> all(processes);
  for (int process = 0; process < processes; ++process) {
    scenario->paces.push_back(draw_pace(random));
    all[process] = process;
  }
  return all;
}

static void draw_network(Random* random, Scenario* scenario) {
  NetworkOptions& network = scenario->network;
  network.latency_max = random->spread(100, 100'000);
  if (random->chance(30)) network.stall_percent = network.refuse_percent = network.late_percent = 0;
  network.stream_percent = random->chance(50) ? 0 : static_cast<int>(random->between(0, 100));
  scenario->is_arbitrated = random->chance(90);
}

Scenario draw_scenario(uint64_t seed, const ScenarioOptions& options) {
  Random random(seed);
  Scenario scenario;
  scenario.seed = seed;
  const int processes = draw_size(&random, options);
  const std::vector<int> all = draw_processes(&random, processes, &scenario);
  const int calls = draw_calls(&random, processes, options.calls_max);
  scenario.groups.push_back(draw_group(&random, all, calls));
  if (random.chance(40)) {
    scenario.groups.push_back(draw_group(&random, draw_members(&random, processes), calls));
  }
  draw_network(&random, &scenario);
  draw_faults(&random, options, &scenario);
  return scenario;
}

Scenario draw_plan_scenario(uint64_t seed, const plan::PlanFile& file) {
  Random random(seed);
  Scenario scenario;
  scenario.seed = seed;
  scenario.is_patient = true;
  GroupScenario group;
  group.layout = file.layout;
  group.processes = draw_processes(&random, file.layout.size(), &scenario);
  group.window = static_cast<int>(random.spread(1, 8));
  std::vector<std::shared_ptr<const plan::Plan>> plans;
  for (const plan::Plan& each : file.plans) {
    plans.push_back(std::make_shared<const plan::Plan>(each));
  }
  const int calls = draw_calls(&random, file.layout.size(), /*calls_max=*/12);
  for (int i = 0; i < calls; ++i) {
    Call drawn = draw_extent(&random, file.layout.size());
    draw_elements(&random, &drawn.values);
    drawn.operation = file.operation;
    drawn.root = file.root;
    drawn.plans = plans;
    group.calls.push_back(std::move(drawn));
  }
  scenario.groups.push_back(std::move(group));
  draw_network(&random, &scenario);
  return scenario;
}

}  // namespace ciuic::sim
