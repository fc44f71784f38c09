// SPDX-License-Identifier: Apache-2.0
// run_faults.cc: faults come about.

#include <fmt/format.h>

#include "sim/draw_faults.h"
#include "sim/run.h"

namespace ciuic::sim {

// What is known beforehand of a fault.
void Run::plan(size_t number) {
  const Fault& fault = faults_[number].fault;
  if (fault.kind == FaultKind::kShortTimeout || fault.kind == FaultKind::kExited) return;
  if (fault.group < 0 || fault.kind == FaultKind::kAborts ||
      fault.kind == FaultKind::kClosesEarly || fault.kind == FaultKind::kBadControl) {
    return at(fault.at, [this, number] { happen(number); });
  }
  GroupRun& run = groups_[static_cast<size_t>(fault.group)];
  Caller& caller = *run.callers[static_cast<size_t>(run.rank_of(fault.victim))];
  const std::vector<Call>& calls = run.record.scenario->calls;
  faults_[number].happened_at = 0;
  switch (fault.kind) {
    case FaultKind::kNeverCalls:
    case FaultKind::kCallsLate: caller.hold(fault.call, fault.until); break;
    case FaultKind::kCallsOtherwise: {
      const auto lie = static_cast<OtherCall>(fault.lie);
      const bool swaps = lie == OtherCall::kOrder;
      caller.call_otherwise(
          fault.call,
          swaps ? calls[fault.call + 1]
                : *otherwise(calls[fault.call], lie, static_cast<int>(run.members.size())),
          swaps);
      break;
    }
    case FaultKind::kBadMessage:
      lies_.push_back({static_cast<BadMessage>(fault.lie), fault.call});
      network_.set_lie(run.id, fault.victim, &lies_.back());
      break;
    default: break;
  }
}

void Run::happen(size_t number) {
  FaultRecord& record = faults_[number];
  const Fault& fault = record.fault;
  Process& process = *processes_[fault.victim];
  if (process.dead || stage_ > Stage::kSettling) return;
  const bool is_own_act = fault.kind == FaultKind::kAborts || fault.kind == FaultKind::kClosesEarly;
  if (is_own_act && process.is_stopped(network_.now())) return;
  record.happened_at = network_.now();
  switch (fault.kind) {
    case FaultKind::kKilled:
    case FaultKind::kExited: return kill(fault.victim, fault.loses);
    case FaultKind::kStopped:
    case FaultKind::kPaused:
      process.stopped_from = network_.now();
      process.stopped_until = fault.until;
      if (fault.until == kNever) return set_counts(fault.victim, false);
      return at(fault.until, [this, victim = fault.victim] {
        network_.wake(victim, network_.now());
        network_.wake(processes_count_ + victim, network_.now());
      });
    case FaultKind::kAborts:
    case FaultKind::kClosesEarly: {
      GroupRun& run = groups_[static_cast<size_t>(fault.group)];
      const int rank = run.rank_of(fault.victim);
      Member& member = *run.members[static_cast<size_t>(rank)];
      if (member.is_closed()) {
        record.happened_at = kNever;
      } else if (fault.kind == FaultKind::kAborts) {
        member.abort(fmt::format("rank {} called abort()", rank));
      } else {
        member.close(network_.now());
        network_.wake(fault.victim, network_.now());
      }
      return;
    }
    case FaultKind::kBadControl: return plant_control(fault);
    default: return hit_connections(fault);
  }
}

void Run::plant_control(const Fault& fault) {
  GroupRun& run = groups_[static_cast<size_t>(fault.group)];
  if (run.star == nullptr) return;
  control::Message message;
  message.kind = static_cast<control::MessageKind>(random_.between(1, 9));
  message.status = {static_cast<StatusCode>(random_.between(0, 11)), "rank 1 says nonsense"};
  message.about = static_cast<int>(random_.next());
  message.flag = random_.chance(50);
  message.is_late = random_.chance(50);
  message.sequence = static_cast<uint32_t>(random_.next());
  message.next = static_cast<uint32_t>(random_.next());
  message.fingerprint = static_cast<uint32_t>(random_.next());
  message.operation = random_.chance(50) ? "nonsense" : "";
  std::string bytes = control::encode(message);
  switch (static_cast<BadControl>(fault.lie)) {
    case BadControl::kGarbage:
      bytes.assign(static_cast<size_t>(random_.between(1, 100)), '\0');
      for (char& byte : bytes) byte = static_cast<char>(random_.next());
      break;
    case BadControl::kTruncated:
      bytes.resize(static_cast<size_t>(random_.between(0, static_cast<int64_t>(bytes.size()) - 1)));
      break;
    case BadControl::kNonsense: break;
  }
  run.star->plant(run.rank_of(fault.victim), std::move(bytes));
}

void Run::hit_connections(const Fault& fault) {
  if (fault.hits_data()) {
    if (fault.cuts()) network_.cut(fault.victim, fault.other);
    if (fault.drops()) network_.drop(fault.victim, fault.other);
  }
  if (!fault.hits_control()) return;
  for (GroupRun& run : groups_) {
    const int victim = run.rank_of(fault.victim);
    const int other = fault.other < 0 ? -1 : run.rank_of(fault.other);
    if (run.star == nullptr || victim < 0 || (fault.other >= 0 && other < 0)) continue;
    if (other > 0 && victim > 0) continue;  // there is no line between them
    const int rank = victim == 0 && other > 0 ? other : victim;
    if (fault.cuts()) run.star->cut(rank, fault.loses, scenario_.bug == Bug::kHubEndUnseen);
    if (fault.drops()) run.star->drop(rank);
  }
}

void Run::kill(int number, bool loses) {
  processes_[number]->dead = true;
  set_counts(number, false);
  if (scenario_.bug == Bug::kDeathUnseen) return;
  network_.die(number, loses);
  for (GroupRun& run : groups_) {
    const int rank = run.rank_of(number);
    if (run.star != nullptr && rank >= 0) run.star->end_of(rank, loses);
  }
}

void Run::set_counts(int number, bool counts) {
  Process& process = *processes_[number];
  if (process.counts == counts) return;
  process.counts = counts;
  unfinished_ += counts ? 1 : -1;
  if (unfinished_ > 0) return;
  if (stage_ == Stage::kCalling) settle();
  if (stage_ == Stage::kSurviving) close_all();
}

}  // namespace ciuic::sim
