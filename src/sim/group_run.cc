// SPDX-License-Identifier: Apache-2.0
// group_run.cc: a group comes into being; bugs of the control plane are planted in its lines.

#include "sim/group_run.h"

#include <fmt/format.h>

#include <algorithm>

#include "sim/judge.h"

namespace ciuic::sim {

int GroupRun::rank_of(int process) const {
  const std::vector<int>& processes = record.scenario->processes;
  const auto found = std::find(processes.begin(), processes.end(), process);
  return found == processes.end() ? -1 : static_cast<int>(found - processes.begin());
}

bool GroupRun::is_target(const Scenario& scenario, int rank) const {
  const auto size = static_cast<uint64_t>(record.scenario->processes.size());
  return size > 1 && rank == static_cast<int>(1 + scenario.seed % (size - 1));
}

// Nothing that the rank has called is under way.
static bool is_idle(const RankRecord& record) {
  return std::none_of(record.calls.begin(), record.calls.end(), [](const CallRecord& call) {
    return call.called_at != kNever && call.ended_at == kNever;
  });
}

static bool pass_decision(Bug bug, bool to_target, const RankRecord& to,
                          control::Message* message) {
  const Status& status = message->status;
  switch (bug) {
    case Bug::kDecisionLost: return !to_target;
    case Bug::kIdleNotTold: return !is_idle(to);
    case Bug::kDecisionDiffers:
      if (to_target) message->status = {status.code(), status.message() + " Or so."};
      return true;
    case Bug::kDecisionOfOtherCode:
      message->status = {StatusCode::kSystem, status.message()};
      return true;
    case Bug::kDecisionNamesOther:
      message->status = {status.code(), "rank 77 is to blame"};
      return true;
    default: return true;
  }
}

// What becomes of a message where there is a bug. False: it is lost.
static bool pass(Bug bug, bool from_target, bool to_target, const RankRecord& to,
                 control::Message* message) {
  switch (message->kind) {
    case control::MessageKind::kCause: return bug != Bug::kCauseIgnored;
    case control::MessageKind::kGone: return bug != Bug::kGoneNotTold;
    case control::MessageKind::kAlive: return bug != Bug::kHeartbeatsLost || !from_target;
    case control::MessageKind::kCalled: return bug != Bug::kAnswersLost;
    case control::MessageKind::kLeave: return bug != Bug::kLeaveNotTold;
    case control::MessageKind::kDecision: return pass_decision(bug, to_target, to, message);
    default: return true;
  }
}

void GroupMaker::make(GroupRun* run) const {
  const GroupScenario& group = *run->record.scenario;
  const int size = static_cast<int>(group.processes.size());
  const auto processes_count = static_cast<int>(processes->size());
  std::vector<int> host_of(static_cast<size_t>(size));
  std::vector<int> controls;
  control::Settings settings = settings_for(*scenario);
  for (int rank = 0; rank < size; ++rank) {
    host_of[static_cast<size_t>(rank)] = group.layout.host_of(rank);
    controls.push_back(processes_count + group.processes[static_cast<size_t>(rank)]);
    settings.names.push_back(fmt::format("rank {} (host {})", rank, group.layout.host_of(rank)));
  }
  network->connect(run->id, run->epoch, group.processes, host_of);
  if (scenario->is_arbitrated && size > 1) {
    run->star = std::make_unique<ControlStar>(network, controls, scenario->control.latency_max,
                                              Random(seed ^ mix(run->id)));
  }
  if (run->star != nullptr && scenario->network.prints) run->star->set_prints();
  if (run->star != nullptr && scenario->bug != Bug::kNone) {
    run->star->set_tamper(
        [run, this_scenario = scenario](int from, int to, control::Message* message) {
          return pass(this_scenario->bug, run->is_target(*this_scenario, from),
                      run->is_target(*this_scenario, to),
                      run->record.ranks[static_cast<size_t>(to)], message);
        });
  }
  run->record.ranks.resize(static_cast<size_t>(size));
  run->lines_ended.assign(static_cast<size_t>(size), false);
  for (int rank = 0; rank < size; ++rank) {
    const int number = group.processes[static_cast<size_t>(rank)];
    Process& process = *(*processes)[static_cast<size_t>(number)];
    MemberOptions options;
    options.world = network;
    options.judge = judge;
    options.engine = &process.engine;
    options.config.id = run->id;
    options.config.epoch = run->epoch;
    options.config.rank = rank;
    options.config.window = group.window;
    options.config.first_sequence = group.first_sequence;
    options.config.links = network->take_links(rank);
    if (run->star != nullptr) {
      settings.rank = rank;
      options.settings = settings;
      options.lines = run->star->lines(rank);
    }
    options.process = number;
    options.control = controls[static_cast<size_t>(rank)];
    options.record = &run->record.ranks[static_cast<size_t>(rank)];
    options.record->process = number;
    options.bug = scenario->bug;
    options.is_target = run->is_target(*scenario, rank);
    process.members.push_back(std::make_unique<Member>(std::move(options)));
    Member* member = process.members.back().get();
    process.callers.push_back(std::make_unique<Caller>(
        CallerOptions{.judge = judge,
                      .scenario = scenario,
                      .group = &group,
                      .number = run->record.number,
                      .rank = rank,
                      .member = member,
                      .record = &run->record.ranks[static_cast<size_t>(rank)],
                      .is_target = run->is_target(*scenario, rank)}));
    run->members.push_back(member);
    run->callers.push_back(process.callers.back().get());
  }
}

}  // namespace ciuic::sim
