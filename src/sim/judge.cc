// SPDX-License-Identifier: Apache-2.0
// judge.cc: rules that hold for every group, and how strict they are under its faults.

#include "sim/judge.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <set>

namespace ciuic::sim {

constexpr TimeNs kMs = 1'000'000;
constexpr TimeNs kSecond = 1000 * kMs;

bool names_rank(const std::string& message, int rank) {
  static const std::string kWord = "rank";
  for (size_t at = message.find(kWord); at != std::string::npos; at = message.find(kWord, at)) {
    at += kWord.size();
    if (at < message.size() && message[at] == 's') ++at;
    while (at + 1 < message.size() && message[at] == ' ' && std::isdigit(message[at + 1]) != 0) {
      int number = 0;
      for (++at; at < message.size() && std::isdigit(message[at]) != 0; ++at) {
        number = number * 10 + (message[at] - '0');
      }
      if (number == rank) return true;
      if (at < message.size() && message[at] == ',') ++at;
    }
  }
  return false;
}

TimeNs spread_bound(const Scenario& scenario) {
  TimeNs slowest = 0;
  for (const Pace& pace : scenario.paces) slowest = std::max(slowest, pace.step_max);
  // A cause, two questions, their answers, the decision; and whoever hears it takes a step first.
  return 2 * slowest + 8 * (scenario.control.latency_max + scenario.control.step_max) + kMs;
}

control::Settings settings_for(const Scenario& scenario) {
  control::Settings settings = control::Settings::for_timeout(scenario.timeout_ms);
  if (scenario.bug == Bug::kSilenceUnseen) {
    settings.heartbeat = 1'000'000 * kSecond;
    settings.lost_after = kNever;
  }
  return settings;
}

TimeNs longest_bound(const Scenario& scenario) {
  const control::Settings settings = settings_for(scenario);
  return spread_bound(scenario) + 2 * settings.answer_within + settings.decide_within +
         settings.orphan_after;
}

GroupJudge::GroupJudge(const Scenario* scenario, const std::vector<FaultRecord>* faults,
                       const std::vector<Warning>* warnings, const GroupRecord* group, Fail fail)
    : scenario_(*scenario),
      warnings_(*warnings),
      group_(*group),
      fail_([number = group->number, fail = std::move(fail)](const std::string& what) {
        fail(fmt::format("group {}: {}", number, what));
      }),
      settings_(settings_for(*scenario)) {
  for (const FaultRecord& record : *faults) {
    const bool is_call = record.fault.kind == FaultKind::kShortTimeout;
    if (touches(record.fault) && (is_call || record.happened_at != kNever)) {
      faults_.push_back(record);
    }
  }
}

int GroupJudge::rank_of(int process) const {
  const std::vector<int>& processes = group_.scenario->processes;
  const auto found = std::find(processes.begin(), processes.end(), process);
  return found == processes.end() ? -1 : static_cast<int>(found - processes.begin());
}

bool GroupJudge::touches(const Fault& fault) const {
  if (fault.kind == FaultKind::kShortTimeout) return true;
  if (fault.group >= 0 && fault.group != group_.number) return false;
  if (rank_of(fault.victim) < 0) return false;
  return fault.other < 0 || rank_of(fault.other) >= 0;
}

bool GroupJudge::is_live(int rank) const {
  for (const FaultRecord& record : faults_) {
    const bool ends = record.fault.is_death() || record.fault.kind == FaultKind::kStopped;
    if (ends && rank_of(record.fault.victim) == rank) return false;
  }
  return true;
}

bool GroupJudge::is_held(int rank, size_t call) const {
  return std::any_of(faults_.begin(), faults_.end(), [&](const FaultRecord& record) {
    return record.fault.kind == FaultKind::kNeverCalls && rank_of(record.fault.victim) == rank &&
           call >= record.fault.call;
  });
}

bool GroupJudge::closes_early(int rank) const {
  return std::any_of(faults_.begin(), faults_.end(), [&](const FaultRecord& record) {
    return record.fault.kind == FaultKind::kClosesEarly && rank_of(record.fault.victim) == rank;
  });
}

bool GroupJudge::hub_is_victim() const {
  return std::any_of(faults_.begin(), faults_.end(), [&](const FaultRecord& record) {
    const Fault& fault = record.fault;
    if (rank_of(fault.victim) != 0 && (fault.other < 0 || rank_of(fault.other) != 0)) return false;
    if (fault.hits_control()) return fault.other < 0 && rank_of(fault.victim) == 0;
    return fault.is_death() || fault.kind == FaultKind::kStopped ||
           fault.kind == FaultKind::kPaused;
  });
}

bool GroupJudge::is_cut_off(int rank) const {
  return std::any_of(faults_.begin(), faults_.end(), [&](const FaultRecord& record) {
    const Fault& fault = record.fault;
    if (!fault.hits_control()) return false;
    const int victim = rank_of(fault.victim);
    const int other = fault.other < 0 ? 0 : rank_of(fault.other);
    if (victim == 0) return fault.other < 0 ? rank != 0 : rank == other;
    return other == 0 && rank == victim;  // else there is no line between them
  });
}

TimeNs GroupJudge::resumed_at(int rank) const {
  TimeNs at = 0;
  for (const FaultRecord& record : faults_) {
    const bool is_it = record.fault.kind == FaultKind::kPaused;
    if (is_it && rank_of(record.fault.victim) == rank) at = std::max(at, record.fault.until);
  }
  return at;
}

// From an operation's deadline until it has ended: longer where somebody may not answer.
TimeNs GroupJudge::bound() const {
  TimeNs bound = spread_bound(scenario_);
  bool silent = false;
  for (const FaultRecord& record : faults_) {
    const FaultKind kind = record.fault.kind;
    silent |= record.fault.drops() || kind == FaultKind::kStopped || kind == FaultKind::kPaused ||
              kind == FaultKind::kBadControl;
  }
  if (silent) bound += 2 * settings_.answer_within + settings_.decide_within;
  return bound;
}

std::vector<std::string> GroupJudge::errors() const {
  std::vector<std::string> texts;
  for (const Error& error : errors_) {
    std::string text = fmt::format("group {}, rank {}: {}: {}", group_.number, error.rank,
                                   name_of(error.status.code()), error.status.message());
    const auto is_it = [&](const std::string& other) {
      return other.substr(other.find(": ")) == text.substr(text.find(": "));
    };
    if (std::none_of(texts.begin(), texts.end(), is_it)) texts.push_back(std::move(text));
  }
  return texts;
}

void GroupJudge::judge() {
  if (!scenario_.is_arbitrated || group_.ranks.size() == 1) {
    collect();
    judge_results();
    return judge_loose();
  }
  collect();
  judge_results();
  for (size_t rank = 0; rank < group_.ranks.size(); ++rank) {
    judge_rank(static_cast<int>(rank));
    if (is_live(static_cast<int>(rank))) judge_calls(static_cast<int>(rank));
  }
  judge_errors();
  judge_sameness();
  judge_warnings();
  for (const FaultRecord& record : faults_) {
    if (record.fault.is_death()) judge_knowledge(record);
    if (record.fault.kind == FaultKind::kAborts) judge_abort(record);
    if (record.fault.cuts()) judge_cut(record);
  }
}

void GroupJudge::collect() {
  for (size_t r = 0; r < group_.ranks.size(); ++r) {
    const int rank = static_cast<int>(r);
    if (!is_live(rank)) continue;
    const RankRecord& record = group_.ranks[r];
    for (const CallRecord& call : record.calls) {
      const bool by_close = call.ended_at != kNever && call.ended_at >= record.closed_at;
      if (!call.status.ok() && !by_close) errors_.push_back({rank, call.ended_at, call.status});
    }
    if (!record.end.ok()) errors_.push_back({rank, record.ended_at, record.end});
    if (!record.unheard.ok()) errors_.push_back({rank, record.closed_at, record.unheard, true});
  }
  std::stable_sort(errors_.begin(), errors_.end(),
                   [](const Error& a, const Error& b) { return a.at < b.at; });
}

// All ranks have the same bits.
void GroupJudge::judge_results() {
  for (size_t call = 0; call < group_.scenario->calls.size(); ++call) {
    uint64_t first = 0;
    for (const RankRecord& record : group_.ranks) {
      const uint64_t hash = record.calls[call].hash;
      if (hash == 0) continue;
      if (first == 0) first = hash;
      if (hash != first) {
        fail_(fmt::format("call {} ({}): ranks have different bits", call,
                          group_.scenario->calls[call].text()));
        break;
      }
    }
  }
}

// Every call ends, soon after its deadline, and after the group's end as the group did.
void GroupJudge::judge_calls(int rank) {
  const RankRecord& record = group_.ranks[static_cast<size_t>(rank)];
  for (size_t number = 0; number < record.calls.size(); ++number) {
    const CallRecord& call = record.calls[number];
    const std::string which = fmt::format("rank {}, call {}", rank, number);
    if (call.called_at == kNever) {
      if (record.closed_at > group_.judged_until && !is_held(rank, number)) {
        fail_(which + " was never made");
      }
      continue;
    }
    if (call.ended_at == kNever) {
      fail_(which + " never ended");
      continue;
    }
    const TimeNs from = std::max(call.deadline, resumed_at(rank));
    if (from != kNever && call.ended_at > from + bound()) {
      fail_(fmt::format("{} ended {} ns after its deadline, {} are allowed: {}", which,
                        call.ended_at - from, bound(), call.status.message()));
    }
    if (call.ended_at >= record.closed_at) continue;
    if (call.status.ok()) {
      // A rank sees an end only when it looks; the operation itself ended before.
      const TimeNs seen = scenario_.paces[static_cast<size_t>(record.process)].step_max;
      if (call.called_at > record.ended_at || call.ended_at - seen - kMs > record.ended_at) {
        fail_(which + " ended well after its group's error");
      }
      if (call.ended_at - seen - kMs > from) fail_(which + " ended well after its deadline");
    } else if (record.ends == 0) {
      fail_(fmt::format("{} ended in an error, and nobody ended the group: {}", which,
                        call.status.message()));
    } else if (call.status.code() != record.end.code() ||
               call.status.message() != record.end.message()) {
      fail_(fmt::format("{} ended otherwise than its group: {}; {}", which, call.status.message(),
                        record.end.message()));
    }
  }
}

void GroupJudge::judge_rank(int rank) {
  const RankRecord& record = group_.ranks[static_cast<size_t>(rank)];
  if (record.ends > 1) fail_(fmt::format("rank {} was ended {} times", rank, record.ends));
  if (!is_live(rank)) return;
  if (record.closed_at != kNever && !record.over && !hub_is_victim() && !is_cut_off(rank) &&
      rank != 0) {
    fail_(fmt::format("rank {} has closed, and its control plane goes on", rank));
  }
  judge_reports(rank);
  // Whoever had completed all it had called hears of the error at its close.
  const bool has_error =
      std::any_of(record.calls.begin(), record.calls.end(),
                  [](const auto& call) { return call.ended_at != kNever && !call.status.ok(); });
  const bool has_closed = record.closed_at != kNever;
  if (record.ends > 0 && !has_error && has_closed && record.unheard.ok()) {
    fail_(fmt::format("rank {} was never told of: {}", rank, record.end.message()));
  }
}

// Nobody is called dead who lives, and whose line to the hub was not cut.
void GroupJudge::judge_reports(int rank) {
  const RankRecord& record = group_.ranks[static_cast<size_t>(rank)];
  for (size_t other = 0; other < record.told_dead_at.size(); ++other) {
    const int number = static_cast<int>(other);
    if (record.told_dead_at[other] > group_.judged_until || !is_live(number)) continue;
    const bool hub_by_cut = number == 0 && is_cut_off(rank);
    if (is_cut_off(number) || hub_by_cut) continue;
    fail_(fmt::format("rank {} was told that rank {} is dead", rank, number));
  }
}

// Each error is explained by a fault.
void GroupJudge::judge_errors() {
  std::set<std::string> judged;
  for (const Error& error : errors_) {
    const std::string wrong = wrong_with(error);
    if (wrong.empty() || !judged.insert(error.status.message()).second) continue;
    fail_(fmt::format("rank {}: {}: {}: {}", error.rank, wrong, name_of(error.status.code()),
                      error.status.message()));
  }
}

std::string GroupJudge::wrong_with(const Error& error) const {
  const bool is_time_out = error.status.code() == StatusCode::kTimeout;
  if (faults_.empty() && (scenario_.is_patient || !is_time_out)) return "an error, and no fault";
  if (is_time_out) {
    const std::string wrong = wrong_with_time_out(error);
    if (!wrong.empty()) return wrong;
    if (!scenario_.is_patient) {
      // Time was short. But where a rank is late, or silent, the message says so.
      for (const FaultRecord& record : faults_) {
        const FaultKind kind = record.fault.kind;
        const bool is_late = kind == FaultKind::kNeverCalls || kind == FaultKind::kCallsLate ||
                             kind == FaultKind::kStopped;
        const bool is_known = faults_.size() == 1 && error.at >= record.happened_at;
        if (is_late && is_known && !explains(record, error)) {
          return "a time-out that does not say who is late";
        }
      }
      return "";
    }
  }
  for (const FaultRecord& record : faults_) {
    if (explains(record, error)) return "";
  }
  if (follows_from_another(error)) return "";
  return "an error that no fault explains";
}

// All who can hear the same word have the same status, and soon after each other.
void GroupJudge::judge_sameness() {
  if (errors_.empty() || hub_is_victim()) return;
  const Error* first = nullptr;
  for (const Error& error : errors_) {
    if (is_cut_off(error.rank)) continue;
    if (first == nullptr) first = &error;
    if (error.status.code() != first->status.code() ||
        error.status.message() != first->status.message()) {
      return fail_(fmt::format("ranks {} and {} have different errors: {}; {}", first->rank,
                               error.rank, first->status.message(), error.status.message()));
    }
  }
  if (first == nullptr || first->at > group_.judged_until) return;
  for (size_t r = 0; r < group_.ranks.size(); ++r) {
    const int rank = static_cast<int>(r);
    const RankRecord& record = group_.ranks[r];
    if (!is_live(rank) || is_cut_off(rank) || record.closed_at <= group_.judged_until) continue;
    if (resumed_at(rank) > group_.judged_until) continue;
    const TimeNs latest = std::max(first->at, resumed_at(rank)) + spread_bound(scenario_);
    if (record.ends == 0 || record.ended_at > latest) {
      return fail_(
          fmt::format("rank {} was not told in time of: {}", rank, first->status.message()));
    }
  }
}

// Long before a time-out for a rank that is late, there was a warning that names it.
void GroupJudge::judge_warnings() const {
  if (!scenario_.is_patient || faults_.size() != 1 || errors_.empty()) return;
  if (faults_[0].fault.kind != FaultKind::kNeverCalls) return;
  const int victim = rank_of(faults_[0].fault.victim);
  const TimeNs latest = errors_[0].at - scenario_.timeout_ms * kMs / 2;
  for (const Warning& warning : warnings_) {
    if (warning.at <= latest && names_rank(warning.text, victim)) return;
  }
  fail_(fmt::format("no warning named rank {} in time", victim));
}

// A process whose kernel lives cannot be gone for a second without all others knowing.
void GroupJudge::judge_knowledge(const FaultRecord& record) {
  const int victim = rank_of(record.fault.victim);
  const TimeNs latest = record.happened_at + kSecond;
  for (size_t r = 0; r < group_.ranks.size(); ++r) {
    const int rank = static_cast<int>(r);
    const RankRecord& of_rank = group_.ranks[r];
    if (rank == victim || !is_live(rank)) continue;
    const bool can_hear =
        !is_cut_off(rank) && !is_cut_off(victim) && !(hub_is_victim() && victim != 0);
    const bool was_there = of_rank.closed_at > latest && of_rank.ended_at > record.happened_at &&
                           group_.judged_until >= latest && resumed_at(rank) < record.happened_at;
    if (can_hear && was_there && of_rank.knew_gone_at[static_cast<size_t>(victim)] > latest) {
      return fail_(
          fmt::format("rank {} did not know within a second that rank {} is gone", rank, victim));
    }
  }
  if (faults_.size() > 1) return;
  // What cannot end without it has ended in an error.
  for (const Error& error : errors_) {
    if (error.by_close || !names_rank(error.status.message(), victim)) continue;
    TimeNs from = record.happened_at;
    for (const RankRecord& of_rank : group_.ranks) {
      for (const CallRecord& call : of_rank.calls) {
        if (call.called_at != kNever && call.called_at < error.at) {
          from = std::max(from, call.called_at);
        }
      }
    }
    if (error.at > from + kSecond + spread_bound(scenario_)) {
      return fail_(fmt::format("rank {} ended for a death only {} ns after it", error.rank,
                               error.at - from));
    }
  }
}

// Both ends of a line that was cut know within a second.
void GroupJudge::judge_cut(const FaultRecord& record) {
  const TimeNs latest = record.happened_at + kSecond;
  if (!record.fault.hits_control() || faults_.size() > 1 || group_.judged_until < latest) return;
  const RankRecord& hub = group_.ranks[0];
  for (size_t rank = 1; rank < group_.ranks.size(); ++rank) {
    const RankRecord& of_rank = group_.ranks[rank];
    const bool is_end = is_cut_off(static_cast<int>(rank)) ||
                        (record.fault.other < 0 && rank_of(record.fault.victim) == 0);
    if (!is_end || of_rank.closed_at <= latest || hub.closed_at <= latest) continue;
    if (of_rank.knew_gone_at[0] > latest || hub.knew_gone_at[rank] > latest) {
      return fail_(fmt::format("rank {}'s line was cut, and it or the hub did not know", rank));
    }
  }
}

// An abort() ends the group everywhere, at once.
void GroupJudge::judge_abort(const FaultRecord& record) {
  const int victim = rank_of(record.fault.victim);
  const TimeNs latest = record.happened_at + spread_bound(scenario_);
  if (hub_is_victim() || is_cut_off(victim) || group_.judged_until < latest) return;
  for (size_t r = 0; r < group_.ranks.size(); ++r) {
    const int rank = static_cast<int>(r);
    const RankRecord& of_rank = group_.ranks[r];
    const bool can_hear = is_live(rank) && !is_cut_off(rank) && resumed_at(rank) == 0;
    if (can_hear && of_rank.closed_at > latest && of_rank.ended_at > latest) {
      return fail_(fmt::format("rank {} heard nothing of an abort()", rank));
    }
  }
}

// Without a control plane each rank ends by what it sees, or by another's word.
void GroupJudge::judge_loose() {
  TimeNs first_fault = kNever;
  TimeNs first_end = kNever;
  for (const FaultRecord& record : faults_) first_fault = std::min(first_fault, record.happened_at);
  for (const Error& error : errors_) first_end = std::min(first_end, error.at);
  for (size_t r = 0; r < group_.ranks.size(); ++r) {
    const int rank = static_cast<int>(r);
    if (!is_live(rank)) continue;
    const RankRecord& record = group_.ranks[r];
    for (size_t number = 0; number < record.calls.size(); ++number) {
      const CallRecord& call = record.calls[number];
      const std::string which = fmt::format("rank {}, call {}", rank, number);
      if (call.called_at == kNever) {
        if (!is_held(rank, number) && !closes_early(rank)) fail_(which + " was never made");
        continue;
      }
      if (call.ended_at == kNever) {
        fail_(which + " never ended");
        continue;
      }
      const TimeNs from = std::max(call.deadline, resumed_at(rank));
      if (call.ended_at > from + spread_bound(scenario_)) fail_(which + " ended too late");
    }
  }
  std::set<std::string> heard;
  for (const Error& error : errors_) {
    if (!heard.insert(error.status.message()).second) continue;
    std::string wrong;
    const bool is_time_out = error.status.code() == StatusCode::kTimeout;
    const bool follows = is_time_out || &error != &errors_.front();
    if (faults_.empty() && (scenario_.is_patient || !follows)) wrong = "an error, and no fault";
    if (is_time_out) wrong = wrong_with_time_out(error);
    if (error.status.code() == StatusCode::kPeerLost &&
        error.at < std::min(first_fault, first_end)) {
      wrong = "nobody was lost";
    }
    if (error.status.message().find("rank ") == std::string::npos) wrong = "it names no rank";
    if (!wrong.empty()) fail_(wrong + ": " + error.status.message());
  }
}

}  // namespace ciuic::sim
