// SPDX-License-Identifier: Apache-2.0
// simulation.cc: the loop that lets simulated processes step, and the judgement at the end.

#include "sim/simulation.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>

#include "engine/engine.h"
#include "memory/staging_pool.h"
#include "sim/caller.h"

namespace ciuic::sim {
namespace {

// More steps than any sound run takes: it goes round and round.
constexpr uint64_t kMostSteps = 40'000'000;

// A process that asks again though nothing moved does so ever more seldom.
constexpr TimeNs kLongestIdle = 200'000;

class Simulation final : public Judge {
 public:
  explicit Simulation(const Scenario& scenario)
      : scenario_(scenario),
        network_(scenario.seed + 1, static_cast<int>(scenario.paces.size()), scenario.network) {}

  Outcome run() {
    set_up();
    loop();
    judge();
    outcome_.digest = network_.digest();
    outcome_.ended_at = network_.now();
    return std::move(outcome_);
  }

  // Judge
  void fail(const std::string& what) override {
    if (outcome_.failures.size() < 20) {
      outcome_.failures.push_back(fmt::format("at {} ns: {}", network_.now(), what));
    }
  }
  TimeNs loss_at() const override {
    return scenario_.fault == Fault::kCut ? scenario_.fault_at : kNever;
  }

 private:
  struct Process {
    Process() : staging(size_t{1} << 26), engine(&staging) {}

    memory::StagingPool staging;
    engine::Engine engine;
    std::vector<std::unique_ptr<Caller>> callers;
    TimeNs not_before = 0;
    TimeNs idle = 0;          // how long it last waited, as nothing moved
    TimeNs asks_at = -1;      // a wake of its own is on its way for then
    TimeNs deadline_at = -1;  // and one for the engine's deadline
    size_t most_staging = 0;
  };

  void set_up();
  void loop();
  void step(int number);
  void wait(int number, bool moved, TimeNs again);
  void ask_again(int number, TimeNs at);
  bool is_over() const;
  bool is_stopped(int number) const {
    return scenario_.fault == Fault::kStopped && number == scenario_.victim &&
           network_.now() >= scenario_.fault_at;
  }
  void judge();
  void judge_results();

  const Scenario& scenario_;
  SimNetwork network_;
  Outcome outcome_;
  std::vector<std::unique_ptr<Process>> processes_;
  std::vector<GroupEnd> ends_;
  std::vector<std::vector<Caller*>> callers_;  // by group, rank
  Random random_{scenario_.seed + 2};
};

void Simulation::set_up() {
  for (size_t i = 0; i < scenario_.paces.size(); ++i) {
    processes_.push_back(std::make_unique<Process>());
  }
  ends_.resize(scenario_.groups.size());
  callers_.resize(scenario_.groups.size());
  for (size_t g = 0; g < scenario_.groups.size(); ++g) {
    const GroupScenario& group = scenario_.groups[g];
    const int size = static_cast<int>(group.processes.size());
    std::vector<int> host_of(size);
    for (int rank = 0; rank < size; ++rank) host_of[rank] = group.layout.host_of(rank);
    const auto id = static_cast<uint32_t>(g + 1);
    network_.connect(id, /*epoch=*/id * 7, group.processes, host_of);
    for (int rank = 0; rank < size; ++rank) {
      Process& process = *processes_[group.processes[rank]];
      engine::GroupConfig config;
      config.id = id;
      config.epoch = id * 7;
      config.rank = rank;
      config.window = group.window;
      config.first_sequence = group.first_sequence;
      config.links = network_.take_links(rank);
      engine::Group* handle = process.engine.add_group(std::move(config));
      process.callers.push_back(std::make_unique<Caller>(this, &scenario_, static_cast<int>(g),
                                                         rank, &process.engine, handle, &ends_[g]));
      callers_[g].push_back(process.callers.back().get());
    }
  }
  if (scenario_.fault == Fault::kCut) {
    network_.cut(scenario_.victim, scenario_.other_victim, scenario_.fault_at);
  }
  for (size_t i = 0; i < processes_.size(); ++i) network_.wake(static_cast<int>(i), 0);
}

void Simulation::loop() {
  int number = 0;
  while (!is_over() && network_.next(&number)) {
    Process& process = *processes_[number];
    if (is_stopped(number)) continue;
    if (network_.now() < process.not_before) {
      ask_again(number, process.not_before);
      continue;
    }
    step(number);
    if (++outcome_.steps > kMostSteps) return fail("goes round and round");
    if (!outcome_.failures.empty() && scenario_.fault == Fault::kNone) return;
  }
}

void Simulation::step(int number) {
  Process& process = *processes_[number];
  const TimeNs now = network_.now();
  network_.stepping(number);
  process.asks_at = -1;
  if (scenario_.paces[number].trims) process.staging.trim();
  TimeNs again = kNever;
  const auto act = [&] {
    for (const auto& caller : process.callers) {
      TimeNs at = kNever;
      caller->act(now, &at);
      again = std::min(again, at);
    }
  };
  act();
  const bool moved = process.engine.step(now);
  process.most_staging = std::max(process.most_staging, process.staging.held());
  again = kNever;
  act();
  wait(number, moved, again);
}

void Simulation::ask_again(int number, TimeNs at) {
  Process& process = *processes_[number];
  if (process.asks_at >= network_.now() && process.asks_at <= at) return;
  process.asks_at = at;
  network_.wake(number, at);
}

// As a driver does: goes on while something moves, then asks for a while, or sleeps.
void Simulation::wait(int number, bool moved, TimeNs again) {
  Process& process = *processes_[number];
  const Pace& pace = scenario_.paces[number];
  const TimeNs now = network_.now();
  process.not_before = now + random_.between(pace.step_min, pace.step_max);
  if (again != kNever) network_.wake(number, again);
  if (moved) {
    process.idle = 0;
    return ask_again(number, process.not_before);
  }
  if (!pace.sleeps) {
    process.idle = std::min(kLongestIdle, process.idle * 2 + 100);
    return ask_again(number, std::max(process.not_before, now + process.idle));
  }
  process.engine.before_sleep();
  const TimeNs deadline = process.engine.next_deadline();
  if (deadline != kNever && deadline != process.deadline_at) {
    process.deadline_at = deadline;
    network_.wake(number, std::max(deadline, now + 1));
  }
}

bool Simulation::is_over() const {
  for (size_t i = 0; i < processes_.size(); ++i) {
    if (is_stopped(static_cast<int>(i))) continue;
    for (const auto& caller : processes_[i]->callers) {
      if (!caller->is_finished()) return false;
    }
  }
  return true;
}

void Simulation::judge() {
  const bool sound = outcome_.failures.empty();
  for (size_t i = 0; i < processes_.size() && sound; ++i) {
    if (is_stopped(static_cast<int>(i))) continue;
    for (const auto& caller : processes_[i]->callers) {
      const std::string pending = caller->pending_text();
      if (!pending.empty()) fail("nothing will ever happen again: " + pending);
    }
  }
  if (sound && scenario_.fault == Fault::kNone && network_.unreleased() > 0) {
    fail(fmt::format("{} payloads were never released", network_.unreleased()));
  }
  judge_results();
  for (size_t i = 0; i < processes_.size(); ++i) {
    Process& process = *processes_[i];
    size_t bound = 0;
    for (const auto& caller : process.callers) {
      bound += caller->staging_bound();
      caller->close(network_.now());
      caller->check_untouched();
      outcome_.operations_ok += caller->ok();
      outcome_.operations_ended += caller->ended();
    }
    if (scenario_.paces[i].trims && process.most_staging > bound) {
      fail(fmt::format("process {} held {} bytes of staging, more than {}", i, process.most_staging,
                       bound));
    }
    process.callers.clear();
    process.staging.trim();
    if (process.staging.held() > 0) {
      fail(
          fmt::format("process {} never gave back {} bytes of staging", i, process.staging.held()));
    }
  }
  for (const std::string& complaint : network_.complaints()) fail(complaint);
}

void Simulation::judge_results() {
  for (size_t g = 0; g < callers_.size(); ++g) {
    const std::vector<Call>& calls = scenario_.groups[g].calls;
    for (size_t call = 0; call < calls.size(); ++call) {
      if (calls[call].operation == plan::Operation::kReduce) continue;
      uint64_t first = 0;
      for (const Caller* caller : callers_[g]) {
        const uint64_t hash = caller->result_hash(call);
        if (hash == 0) continue;
        if (first == 0) first = hash;
        if (hash != first) {
          fail(fmt::format("group {}, call {}: ranks have different bits", g, call));
          break;
        }
      }
    }
  }
}

}  // namespace

Outcome simulate(const Scenario& scenario) { return Simulation(scenario).run(); }

}  // namespace ciuic::sim
