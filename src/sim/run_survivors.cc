// SPDX-License-Identifier: Apache-2.0
// run_survivors.cc: after an error the survivors meet, and go on in a group of their own.

#include <algorithm>

#include "sim/run.h"

namespace ciuic::sim {

constexpr TimeNs kMs = 1'000'000;

// The survivors of the first group come together, unless it ended well.
void Run::muster() {
  GroupRun& run = groups_[0];
  const int size = static_cast<int>(run.members.size());
  bool has_error = false;
  there_.assign(static_cast<size_t>(size), false);
  given_up_.assign(static_cast<size_t>(size), false);
  std::vector<int> controls;
  for (int rank = 0; rank < size; ++rank) {
    const int number = run.record.ranks[rank].process;
    controls.push_back(processes_count_ + number);
    there_[rank] = is_live(number) && !run.members[rank]->is_closed() &&
                   !processes_[number]->is_stopped(network_.now());
    has_error = has_error || (there_[rank] && run.record.ranks[rank].ends > 0);
  }
  if (!scenario_.shrinks || run.star == nullptr || !has_error) return close_all();
  stage_ = Stage::kMustering;
  survivors_ = std::make_unique<Survivors>(&network_, controls, scenario_.control.latency_max,
                                           random_.split());
  if (scenario_.bug == Bug::kSurvivorMisled) survivors_->set_target(size - 1);
  const TimeNs now = network_.now();
  const TimeNs until = now + 2000 * kMs;
  const bool one_dies = random_.chance(15);
  for (int rank = 0; rank < size; ++rank) {
    const int number = run.record.ranks[rank].process;
    if (there_[rank]) at(now + 1 + random_.spread(1, 300 * kMs), [this, rank] { come(rank); });
    if (!there_[rank] && (processes_[number]->dead || run.members[rank]->is_closed())) {
      survivors_->die(rank);
    }
  }
  const int victim = static_cast<int>(random_.next() % static_cast<uint64_t>(size));
  if (one_dies && there_[victim]) {
    at(now + random_.spread(1, 400 * kMs), [this, victim] {
      if (stage_ != Stage::kMustering) return;
      kill(groups_[0].record.ranks[victim].process, random_.chance(50));
      survivors_->die(victim);
      there_[victim] = false;
      look_at_muster();
    });
  }
  at(until + 1000 * kMs, [this] {
    if (stage_ != Stage::kMustering) return;
    fail("the survivors do not end to muster");
    stage_ = Stage::kOver;
  });
}

void Run::come(int rank) {
  GroupRun& run = groups_[0];
  const int number = run.record.ranks[rank].process;
  if (processes_[number]->dead) return;
  const std::vector<bool> gone = run.members[rank]->gone();
  for (size_t other = 0; other < gone.size(); ++other) {
    if (gone[other]) given_up_[other] = true;
  }
  survivors_->begin(rank, gone, network_.now() + 1500 * kMs);
  network_.wake(processes_count_ + number, network_.now());
}

void Run::look_at_muster() {
  for (int rank = 0; rank < survivors_->size(); ++rank) {
    if (there_[rank] && !survivors_->has_ended(rank)) return;
  }
  const std::string wrong = survivors_->wrong(there_, given_up_);
  if (!wrong.empty()) fail(wrong);
  const std::vector<bool> members = survivors_->members();
  // Who has died since is in; the join of the others would tell.
  bool all_there = std::count(members.begin(), members.end(), true) > 1;
  for (size_t rank = 0; rank < members.size(); ++rank) {
    if (members[rank] && !there_[rank]) all_there = false;
  }
  if (!all_there) return close_all();
  go_on(members);
}

// A new group, of the next epoch, over connections of its own.
void Run::go_on(const std::vector<bool>& members) {
  stage_ = Stage::kSurviving;
  std::vector<int> processes;
  for (size_t rank = 0; rank < members.size(); ++rank) {
    if (members[rank]) processes.push_back(groups_[0].record.ranks[rank].process);
  }
  ++outcome_.survivor_groups;
  GroupRun& run = groups_.emplace_back();
  run.id = groups_[0].id;
  run.epoch = groups_[0].epoch + 1;
  const int calls = static_cast<int>(random_.spread(1, 6));
  run.own_scenario = std::make_unique<GroupScenario>(draw_group(&random_, processes, calls));
  run.record.scenario = run.own_scenario.get();
  run.record.number = static_cast<int>(groups_.size()) - 1;
  run.record.judged_until = kNever;
  const GroupMaker maker{&scenario_, &network_, this, &processes_, scenario_.seed + 4};
  maker.make(&run);
  // The old one is closed once the new one is there, or later.
  for (Caller* caller : groups_[0].callers) {
    if (random_.chance(50)) caller->close(network_.now());
  }
  for (const int number : processes) {
    set_counts(number, true);
    network_.wake(number, network_.now());
  }
}

}  // namespace ciuic::sim
