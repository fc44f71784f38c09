// SPDX-License-Identifier: Apache-2.0
// run.cc: the loop that lets simulated processes step, and the stages of a run.

#include "sim/run.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"

namespace ciuic::sim {

constexpr TimeNs kMs = 1'000'000;

// More steps than any sound run takes: it goes round and round.
constexpr uint64_t kMostSteps = 40'000'000;

// A process that asks again though nothing moved does so ever more seldom, and then sleeps.
constexpr TimeNs kLongestIdle = 400'000;

constexpr size_t kKeptBytes = 100;  // Bug::kStagingKept

static NetworkOptions network_options(const Scenario& scenario) {
  NetworkOptions options = scenario.network;
  options.is_blind = scenario.bug == Bug::kCutUnseen || scenario.bug == Bug::kDeathUnseen;
  return options;
}

Run::Run(const Scenario& scenario)
    : scenario_(scenario),
      processes_count_(static_cast<int>(scenario.paces.size())),
      network_(scenario.seed + 1, 2 * processes_count_ + 1, network_options(scenario)) {
  // All groups' warnings; runs of one process are one after another.
  set_log_callback([this](LogLevel level, std::string_view text) {
    if (level == LogLevel::kWarn && warnings_.size() < 1000) {
      warnings_.push_back({network_.now(), std::string(text)});
    }
  });
}

Run::~Run() { set_log_callback({}); }

Outcome Run::run() {
  set_up();
  loop();
  judge();
  outcome_.digest = network_.digest();
  outcome_.ended_at = network_.now();
  return std::move(outcome_);
}

void Run::fail(const std::string& what) {
  if (outcome_.failures.size() < 20) {
    outcome_.failures.push_back(fmt::format("at {} ns: {}", network_.now(), what));
  }
}

void Run::set_up() {
  for (int i = 0; i < processes_count_; ++i) processes_.push_back(std::make_unique<Process>());
  unfinished_ = processes_count_;
  const GroupMaker maker{&scenario_, &network_, this, &processes_, scenario_.seed + 3};
  for (size_t g = 0; g < scenario_.groups.size(); ++g) {
    GroupRun& run = groups_.emplace_back();
    run.id = static_cast<uint32_t>(g + 1);
    run.epoch = run.id * 7;
    run.record.scenario = &scenario_.groups[g];
    run.record.number = static_cast<int>(g);
    maker.make(&run);
  }
  faults_.resize(scenario_.faults.size());
  for (size_t i = 0; i < faults_.size(); ++i) {
    faults_[i].fault = scenario_.faults[i];
    plan(i);
  }
  if (scenario_.bug == Bug::kStagingKept) kept_ = processes_[0]->staging.take(kKeptBytes);
  for (int i = 0; i < processes_count_; ++i) network_.wake(i, 0);
  at(kMs, [this] { watch(); });
}

void Run::loop() {
  int actor = 0;
  while (stage_ != Stage::kOver && network_.next(&actor)) {
    if (actor == script()) {
      on_script();
    } else {
      const bool is_control = actor >= processes_count_;
      const int number = is_control ? actor - processes_count_ : actor;
      const Process& process = *processes_[number];
      if (process.dead || process.is_stopped(network_.now())) continue;
      is_control ? step_control(number) : step(number);
    }
    if (++outcome_.steps > kMostSteps) return fail("goes round and round");
    if (!outcome_.failures.empty() && faults_.empty()) return;
  }
}

void Run::on_script() {
  network_.stepping(script());
  while (!events_.empty() && events_.begin()->first <= network_.now()) {
    const std::function<void()> event = std::move(events_.begin()->second);
    events_.erase(events_.begin());
    event();
  }
}

// Nothing hangs.
void Run::watch() {
  if (stage_ == Stage::kClosing) return;
  TimeNs next = network_.now() + 5000 * kMs;
  for (int i = 0; i < processes_count_; ++i) {
    Process& process = *processes_[i];
    if (!is_live(i)) continue;
    for (const auto& caller : process.callers) {
      TimeNs until = caller->earliest_deadline();
      if (until == kNever) continue;
      if (process.stopped_until != kNever) until = std::max(until, process.stopped_until);
      until += longest_bound(scenario_);
      if (network_.now() >= until) {
        fail("does not end: " + caller->pending_text());
        stage_ = Stage::kOver;
        return;
      }
      next = std::min(next, until);
    }
  }
  at(next, [this] { watch(); });
}

void Run::step(int number) {
  Process& process = *processes_[number];
  const TimeNs now = network_.now();
  if (now < process.not_before) return ask_again(number, process.not_before);
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
  if (process.engine.has_causes()) {
    for (const auto& member : process.members) member->hand_on_cause();
  }
  process.most_staging = std::max(process.most_staging, process.staging.held());
  again = kNever;
  act();
  wait(number, moved, again);
  if (!process.counts || !process.is_finished()) return;
  set_counts(number, false);
  for (size_t i = 0; i < faults_.size(); ++i) {
    const Fault& fault = faults_[i].fault;
    if (fault.kind != FaultKind::kExited || fault.victim != number) continue;
    at(now + fault.at, [this, i] { happen(i); });
  }
}

void Run::ask_again(int number, TimeNs at) {
  Process& process = *processes_[number];
  if (process.asks_at >= network_.now() && process.asks_at <= at) return;
  process.asks_at = at;
  network_.wake(number, at);
}

// As a driver does: goes on while something moves, then asks for a while, then sleeps.
void Run::wait(int number, bool moved, TimeNs again) {
  Process& process = *processes_[number];
  const Pace& pace = scenario_.paces[number];
  const TimeNs now = network_.now();
  process.not_before = now + random_.between(pace.step_min, pace.step_max);
  if (again != kNever) network_.wake(number, again);
  if (moved) {
    process.idle = 0;
    return ask_again(number, process.not_before);
  }
  const TimeNs deadline = process.engine.next_deadline();
  if (!pace.sleeps && process.idle < kLongestIdle) {
    process.idle = process.idle * 2 + 100;
    return ask_again(number, std::max(process.not_before, std::min(deadline, now + process.idle)));
  }
  process.engine.before_sleep();
  if (deadline != kNever && deadline != process.deadline_at) {
    process.deadline_at = deadline;
    network_.wake(number, std::max(deadline, now + 1));
  }
}

void Run::step_control(int number) {
  Process& process = *processes_[number];
  const int actor = processes_count_ + number;
  const TimeNs now = network_.now();
  if (now < process.control_not_before) {
    if (process.control_at < now || process.control_at > process.control_not_before) {
      process.control_at = process.control_not_before;
      network_.wake(actor, process.control_at);
    }
    return;
  }
  network_.stepping(actor);
  process.control_at = -1;
  process.control_not_before = now + random_.between(0, scenario_.control.step_max);
  TimeNs next = kNever;
  for (const auto& member : process.members) next = std::min(next, member->step_control(now));
  for (GroupRun& run : groups_) {
    const int rank = run.rank_of(number);
    if (run.star == nullptr || rank < 0 || run.lines_ended[rank]) continue;
    if (!run.members[rank]->is_over()) continue;
    run.lines_ended[rank] = true;
    run.star->end_of(rank, /*loses=*/false);
  }
  if (stage_ == Stage::kMustering) {
    const int rank = groups_[0].rank_of(number);
    survivors_->step(rank);
    next = std::min(next, survivors_->next_step(rank));
    if (survivors_->has_ended(rank)) look_at_muster();
  }
  if (next == kNever) return;
  process.control_at = std::max(next, process.control_not_before);
  network_.wake(actor, process.control_at);
}

// All calls have ended. What is on its way still arrives: who is idle hears of an error, too.
void Run::settle() {
  stage_ = Stage::kSettling;
  TimeNs until = network_.now();
  if (!faults_.empty()) until += spread_bound(scenario_);
  for (const FaultRecord& record : faults_) {
    if (record.happened_at == kNever) continue;
    if (record.fault.kind == FaultKind::kAborts) {
      until = std::max(until, record.happened_at + spread_bound(scenario_) + 1);
    }
    if (record.fault.is_death() || record.fault.cuts()) {
      until = std::max(until, record.happened_at + 1000 * kMs + 1);
    }
  }
  at(until, [this] {
    for (GroupRun& run : groups_) run.record.judged_until = network_.now();
    if (outcome_.failures.empty() && faults_.empty() && network_.unreleased() > 0) {
      fail(fmt::format("{} payloads were never released", network_.unreleased()));
    }
    muster();
  });
}

void Run::close_all() {
  stage_ = Stage::kClosing;
  const TimeNs now = network_.now();
  TimeNs latest = now;
  for (GroupRun& run : groups_) run.record.judged_until = std::min(run.record.judged_until, now);
  for (int i = 0; i < processes_count_; ++i) {
    if (!is_live(i)) continue;
    const Process& process = *processes_[i];
    const TimeNs earliest = process.is_stopped(now) ? process.stopped_until : now;
    latest = std::max(latest, earliest);
    at(earliest + 1 + random_.between(0, kMs), [this, i] {
      if (!is_live(i)) return;
      for (const auto& caller : processes_[i]->callers) caller->close(network_.now());
    });
  }
  at(latest + 2 * kMs + spread_bound(scenario_), [this] { stage_ = Stage::kOver; });
}

void Run::judge() {
  for (size_t i = 0; i < lies_.size(); ++i) {
    for (FaultRecord& record : faults_) {
      if (record.fault.kind == FaultKind::kBadMessage) record.happened_at = lies_[i].told_at;
    }
  }
  for (int i = 0; i < processes_count_; ++i) judge_process(i);
  for (GroupRun& run : groups_) {
    for (size_t rank = 0; rank < run.members.size(); ++rank) {
      run.record.ranks[rank].over = run.members[rank]->is_over();
    }
    static const std::vector<FaultRecord> kNone;
    GroupJudge judge(&scenario_, run.own_scenario ? &kNone : &faults_, &warnings_, &run.record,
                     [this](const std::string& what) { fail(what); });
    judge.judge();
    for (std::string& error : judge.errors()) outcome_.errors.push_back(std::move(error));
  }
  for (const FaultRecord& record : faults_) {
    outcome_.happened.push_back(record.happened_at != kNever);
  }
  for (const std::string& complaint : network_.complaints()) fail(complaint);
}

void Run::judge_process(int number) {
  Process& process = *processes_[number];
  size_t bound = 0;
  for (const auto& caller : process.callers) {
    bound += caller->staging_bound();
    outcome_.operations_ok += caller->ok();
    outcome_.operations_ended += caller->ended();
    caller->check_untouched();
  }
  for (const auto& member : process.members) member->forsake();
  if (scenario_.paces[number].trims && process.most_staging > bound) {
    fail(fmt::format("process {} held {} bytes of staging, more than {}", number,
                     process.most_staging, bound));
  }
  process.callers.clear();
  process.staging.trim();
  if (process.staging.held() > 0) {
    fail(fmt::format("process {} never gave back {} bytes of staging", number,
                     process.staging.held()));
    if (kept_ != nullptr) process.staging.give_back(kept_, kKeptBytes);
  }
}

}  // namespace ciuic::sim
