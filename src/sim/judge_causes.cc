// SPDX-License-Identifier: Apache-2.0
// judge_causes.cc: which errors a fault may bring about, and what they have to say.

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "sim/judge.h"

namespace ciuic::sim {

constexpr TimeNs kMs = 1'000'000;

// The operation and the rank that a time-out speaks of.
struct LateCall {
  uint32_t sequence = 0;
  int rank = -1;
};

template <typename T>
static bool number_after(const std::string& text, const std::string& words, T* number) {
  const size_t at = text.find(words);
  if (at == std::string::npos) return false;
  const char* begin = text.data() + at + words.size();
  return std::from_chars(begin, text.data() + text.size(), *number).ec == std::errc();
}

static bool parse_late(const std::string& message, LateCall* late) {
  return number_after(message, "(operation ", &late->sequence) &&
         number_after(message, "of its group, on rank ", &late->rank);
}

// Its own deadline has passed, and it had not ended.
std::string GroupJudge::wrong_with_time_out(const Error& error) const {
  LateCall late;
  for (const FaultRecord& record : faults_) {
    const bool is_nonsense = record.fault.kind == FaultKind::kBadControl &&
                             static_cast<BadControl>(record.fault.lie) == BadControl::kNonsense;
    if (is_nonsense) return "";
  }
  if (!parse_late(error.status.message(), &late)) return "a time-out of no operation";
  const uint32_t number = late.sequence - group_.scenario->first_sequence;
  if (late.rank < 0 || late.rank >= static_cast<int>(group_.ranks.size())) return "of no rank";
  const RankRecord& record = group_.ranks[static_cast<size_t>(late.rank)];
  if (number >= record.calls.size()) return "a time-out of no call";
  const CallRecord& call = record.calls[number];
  if (call.called_at == kNever || call.deadline > error.at) return "timed out too early";
  if (call.status.ok() && call.ended_at < call.deadline) return "timed out what had ended";
  return "";
}

bool GroupJudge::explains(const FaultRecord& record, const Error& error) const {
  const Fault& fault = record.fault;
  const int victim = rank_of(fault.victim);
  const StatusCode code = error.status.code();
  const std::string& message = error.status.message();
  const bool names_victim = names_rank(message, victim);
  const bool names_other = fault.other >= 0 && names_rank(message, rank_of(fault.other));
  const bool lost = code == StatusCode::kPeerLost && names_victim;
  const bool has_left = message.find("closed its communicator") != std::string::npos;
  if (error.at < record.happened_at && fault.kind != FaultKind::kShortTimeout) return false;
  switch (fault.kind) {
    case FaultKind::kNone: return false;
    case FaultKind::kKilled: return lost;
    case FaultKind::kExited:
      if (fault.loses || is_held(victim, group_.scenario->calls.size())) return lost;
      return lost && victim == 0 && error.at >= record.happened_at + settings_.orphan_after;
    case FaultKind::kStopped:
    case FaultKind::kPaused:
    case FaultKind::kNeverCalls:
    case FaultKind::kCallsLate: return explains_lateness(record, victim, error);
    case FaultKind::kCutData: return lost || (code == StatusCode::kPeerLost && names_other);
    case FaultKind::kCutControl:
    case FaultKind::kCutBoth:
      if (is_cut_off(error.rank) && has_left) return true;
      if (code == StatusCode::kPeerLost && victim == 0 && fault.other < 0 && error.rank == 0) {
        return true;  // to the hub, the others are gone
      }
      return code == StatusCode::kPeerLost &&
             (names_victim || names_other || names_rank(message, 0));
    case FaultKind::kDroppedData:
      if (code == StatusCode::kTimeout) return true;
      // It went when all that it had sent had left it.
      return code == StatusCode::kPeerLost && (names_victim || names_other || fault.other < 0) &&
             (has_left || (faults_.size() > 1 && message.find("is gone") != std::string::npos));
    case FaultKind::kDroppedControl:
    case FaultKind::kDroppedBoth:
      if (code == StatusCode::kTimeout) return true;
      if (code != StatusCode::kPeerLost) return false;
      // A hub that nobody reaches does not hear of any of them.
      if (victim == 0 && fault.other < 0 && error.rank == 0) return true;
      // Nor does a rank that is cut off hear why others have left.
      if (is_cut_off(error.rank) && has_left) return true;
      return names_victim || names_other || names_rank(message, 0);
    case FaultKind::kCallsOtherwise: return explains_mismatch(fault, victim, error);
    case FaultKind::kBadMessage:
      if (code == StatusCode::kMismatch) return names_victim;
      // Nobody can tell how far ahead a rank may be, so that message is kept, and missed.
      if (static_cast<BadMessage>(fault.lie) == BadMessage::kSequenceAhead &&
          code == StatusCode::kTimeout) {
        return true;
      }
      // It never sent what was due, and is done.
      return lost && has_left;
    case FaultKind::kBadControl:
      if (static_cast<BadControl>(fault.lie) == BadControl::kNonsense) return true;
      return lost || (error.rank == victim && code == StatusCode::kPeerLost);
    case FaultKind::kAborts:
      return code == StatusCode::kAborted &&
             message.find(fmt::format("rank {} called abort()", victim)) != std::string::npos;
    case FaultKind::kClosesEarly:
      return (code == StatusCode::kPeerLost || code == StatusCode::kAborted) && names_victim &&
             has_left;
    case FaultKind::kShortTimeout: return code == StatusCode::kTimeout;
  }
  return false;
}

// Without the hub each rank ends by what it sees, and tells its peers why where there is room: what
// a stopped process has not read may fill a sender's slots. Others then only see that it has left.
bool GroupJudge::follows_from_another(const Error& error) const {
  const std::string& message = error.status.message();
  int left = -1;
  if (!hub_is_victim() || error.status.code() != StatusCode::kPeerLost) return false;
  if (message.find("closed its communicator") == std::string::npos) return false;
  if (!number_after(message, "rank ", &left)) return false;
  return std::any_of(errors_.begin(), errors_.end(), [&](const Error& other) {
    return other.rank == left && other.at <= error.at && other.status.message() != message;
  });
}

// The message has both calls, each with its ranks.
bool GroupJudge::explains_mismatch(const Fault& fault, int victim, const Error& error) const {
  const std::string& message = error.status.message();
  const RankRecord& liar = group_.ranks[static_cast<size_t>(victim)];
  const bool left = liar.closed_at < error.at;
  // What it calls may need ranks that have done all that they called, and are gone.
  const bool others_left = message.find("closed its communicator") != std::string::npos;
  if (error.status.code() == StatusCode::kPeerLost) {
    return others_left || (left && names_rank(message, victim));
  }
  if (error.status.code() != StatusCode::kMismatch || !names_rank(message, victim)) return false;
  if (left) return true;  // it does not answer any more
  // Nobody to ask, or to be asked: then by the two that have met.
  if (hub_is_victim() || is_cut_off(victim) || is_cut_off(error.rank)) return true;
  for (const FaultRecord& record : faults_) {
    if (record.fault.hits_control()) return true;
  }
  bool alone = true;
  for (size_t rank = 0; rank < group_.ranks.size(); ++rank) {
    const int number = static_cast<int>(rank);
    const bool answers = is_live(number) && group_.ranks[rank].closed_at > error.at;
    if (number != victim && answers) alone = false;
  }
  if (alone) return true;
  const bool swaps = static_cast<OtherCall>(fault.lie) == OtherCall::kOrder;
  for (size_t number = fault.call; number < fault.call + (swaps ? 2 : 1); ++number) {
    const std::string& wrong = liar.calls[number].text;
    if (wrong.empty() ||
        message.find(fmt::format("rank {} called {}", victim, wrong)) == std::string::npos) {
      continue;
    }
    for (size_t rank = 0; rank < group_.ranks.size(); ++rank) {
      const std::string& right = group_.ranks[rank].calls[number].text;
      if (static_cast<int>(rank) == victim || right.empty() || right == wrong) continue;
      if (message.find(fmt::format("called {}", right)) != std::string::npos) return true;
    }
  }
  return false;
}

// A rank that is silent when the time is up is lost; one that answers and has not called is late.
bool GroupJudge::explains_lateness(const FaultRecord& record, int victim,
                                   const Error& error) const {
  const Fault& fault = record.fault;
  const std::string& message = error.status.message();
  const bool names_victim = names_rank(message, victim);
  const bool is_silent = fault.kind == FaultKind::kStopped || fault.kind == FaultKind::kPaused;
  if (error.status.code() == StatusCode::kPeerLost) {
    // Who was away for so long that the others have given it up finds them gone.
    const bool given_up = fault.kind == FaultKind::kPaused && error.rank == victim &&
                          fault.until - record.happened_at > settings_.lost_after;
    return is_silent && (names_victim || given_up);
  }
  if (error.status.code() != StatusCode::kTimeout) return false;
  LateCall late;
  if (!parse_late(message, &late)) return false;
  const uint32_t number = late.sequence - group_.scenario->first_sequence;
  const RankRecord& of_victim = group_.ranks[static_cast<size_t>(victim)];
  const TimeNs deadline = group_.ranks[static_cast<size_t>(late.rank)].calls[number].deadline;
  if (fault.kind == FaultKind::kPaused) return names_victim || !scenario_.is_patient;
  if (fault.kind == FaultKind::kStopped) return deadline <= record.happened_at + kMs;
  // It may have called it while the others were being asked.
  const bool has_called = of_victim.calls[number].called_at < error.at;
  return names_victim || has_called;
}

}  // namespace ciuic::sim
