// SPDX-License-Identifier: Apache-2.0
// control_hub.cc: inquiries, and the one decision.

#include "communicator/control_hub.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "wire/header.h"

namespace ciuic::control {

// Of calls that differ, though the same is said of them.
static constexpr const char* kNotInWords =
    " What these words do not show are the counts of each rank, the algorithm, and whether the "
    "tensors are on the CPU or on a GPU; they must be the same, too.";

Hub::Hub(const Settings* settings, TimeNs now, std::function<void(int, const Message&)> send)
    : settings_(*settings), send_(std::move(send)), members_(settings->names.size()) {
  for (Member& member : members_) member.heard_at = now;
  beat_at_ = now + settings_.heartbeat;
}

bool Hub::is_silent(int rank, TimeNs now) const {
  return now - members_[rank].heard_at > settings_.silent_after();
}

void Hub::tell_all(const Message& message) {
  for (size_t rank = 0; rank < members_.size(); ++rank) {
    if (!members_[rank].gone) send_(static_cast<int>(rank), message);
  }
}

void Hub::take(int rank, const Message& message, TimeNs now) {
  Member& member = members_[rank];
  member.heard_at = now;
  switch (message.kind) {
    case MessageKind::kAlive: break;
    case MessageKind::kCause:
      if (decided_ || cause_) break;
      cause_ = message;
      if (message.flag && (message.is_late || message.status.code() == StatusCode::kMismatch)) {
        ask(message.sequence, now);
      } else {
        decide_message(message, now);
      }
      break;
    case MessageKind::kLate:
      // Several ranks wait for the same operation, and each of them says so.
      if (decided_ || cause_) break;
      if (inquiry_) {
        // The oldest operation that ranks wait for tells why they wait for later ones.
        const bool other = inquiry_->sequence != message.sequence;
        const bool older = !asks_next_ || wire::before(message.sequence, *asks_next_);
        if (other && older) asks_next_ = message.sequence;
        break;
      }
      if (asked_ == message.sequence && asked_at_ >= 0 && now - asked_at_ < settings_.ask_after) {
        break;
      }
      ask(message.sequence, now);
      break;
    case MessageKind::kCalled:
      if (inquiry_ && inquiry_->sequence == message.sequence) inquiry_->answers[rank] = message;
      break;
    case MessageKind::kLeave:
      member.gone = member.in_good_order = true;
      member.gone_at = now;
      tell_all({.kind = MessageKind::kGone,
                .status = {StatusCode::kPeerLost,
                           fmt::format("{} closed its communicator", settings_.names[rank])},
                .about = rank,
                .flag = true});
      break;
    case MessageKind::kGivenUp:
      // It may have ended otherwise here, meanwhile: rank 0 still has to know that it is out.
      if (decided_)
        send_(0, {.kind = MessageKind::kDecision, .status = message.status, .about = 0});
      decide(message.status, 0);
      break;
    default: break;  // a rank does not say this
  }
}

// A cause that concerns no collective operation. A message may be late since its peer is stopped,
// or since that one waits for another that is.
void Hub::decide_message(const Message& cause, TimeNs now) {
  int silent = -1;
  for (int rank = 1; cause.is_late && rank < settings_.size(); ++rank) {
    if (members_[rank].gone || !is_silent(rank, now)) continue;
    if (silent < 0 || rank == cause.about) silent = rank;
  }
  if (silent < 0) return decide(cause.status);
  const Status why = about_silence(silent, now);
  decide({why.code(), fmt::format("{}. {}", why.message(), cause.status.message())}, silent);
}

void Hub::line_lost(int rank, TimeNs now) {
  Member& member = members_[rank];
  if (member.gone) return;
  member.gone = true;
  member.gone_at = now;
  // Who needs more of it ends the group; who does not, may still finish.
  tell_all({.kind = MessageKind::kGone,
            .status = {StatusCode::kPeerLost,
                       fmt::format("{} is gone: its connection ended without a goodbye, so its "
                                   "process has died or was killed",
                                   settings_.names[rank])},
            .about = rank});
}

Status Hub::about_silence(int rank, TimeNs now) const {
  return {
      StatusCode::kPeerLost,
      fmt::format("{} has been silent for {:.1f} s: its process is stopped, or its host or the "
                  "network to it is down",
                  settings_.names[rank], static_cast<double>(now - members_[rank].heard_at) / 1e9)};
}

void Hub::shift(TimeNs by) {
  for (Member& member : members_) member.heard_at += by;
  if (inquiry_) inquiry_->until += by;
}

void Hub::step(TimeNs now) {
  for (int rank = 1; rank < settings_.size() && !decided_; ++rank) {
    const Member& member = members_[rank];
    if (member.gone || now - member.heard_at <= settings_.lost_after) continue;
    decide(about_silence(rank, now), rank);
  }
  if (inquiry_ && (now >= inquiry_->until || is_answered(now))) conclude(now);
  if (now < beat_at_) return;
  beat_at_ = now + settings_.heartbeat;
  tell_all({.kind = MessageKind::kAlive});
}

TimeNs Hub::next_step() const {
  TimeNs next = inquiry_ ? std::min(inquiry_->until, beat_at_) : beat_at_;
  for (size_t rank = 1; rank < members_.size() && !decided_; ++rank) {
    const Member& member = members_[rank];
    if (member.gone || settings_.lost_after > kNever - member.heard_at - 1) continue;
    next = std::min(next, member.heard_at + settings_.lost_after + 1);
  }
  return next;
}

bool Hub::is_over() const {
  return std::all_of(members_.begin() + 1, members_.end(),
                     [](const Member& member) { return member.gone; });
}

void Hub::ask(uint32_t sequence, TimeNs now) {
  asked_ = sequence;
  asked_at_ = now;
  inquiry_ = Inquiry{sequence, now + settings_.answer_within, {}, nullptr};
  inquiry_->answers.resize(members_.size());
  tell_all({.kind = MessageKind::kAsk, .sequence = sequence});
}

// From all who can be expected to.
bool Hub::is_answered(TimeNs now) const {
  for (size_t rank = 0; rank < members_.size(); ++rank) {
    if (inquiry_->answers[rank] || members_[rank].gone) continue;
    if (inquiry_->first != nullptr && !inquiry_->first->answers[rank]) continue;
    if (!is_silent(static_cast<int>(rank), now)) return false;
  }
  return true;
}

static std::string ranks_text(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(ranks[i]);
  }
  return text;
}

// Which ranks have made which call; empty where all that is known is alike.
std::string Hub::differing_calls() const {
  std::map<uint32_t, std::vector<int>> ranks;  // by fingerprint
  for (size_t rank = 0; rank < members_.size(); ++rank) {
    const auto& answer = inquiry_->answers[rank];
    if (answer && !answer->operation.empty()) {
      ranks[answer->fingerprint].push_back(static_cast<int>(rank));
    }
  }
  if (ranks.size() < 2) return "";
  std::vector<std::vector<int>> calls;
  for (auto& [fingerprint, of_call] : ranks) calls.push_back(std::move(of_call));
  std::sort(calls.begin(), calls.end());
  std::string text;
  std::set<std::string> different;
  for (const std::vector<int>& of_call : calls) {
    const std::string& call = inquiry_->answers[of_call[0]]->text;
    text += fmt::format("{}{} called {}", text.empty() ? "" : ", ", ranks_text(of_call), call);
    different.insert(call);
  }
  return fmt::format(
      "operation {} of the group is not the same call on all ranks: {}. All ranks must call the "
      "same operations in the same order, with the same dtype, count, op and root.{}",
      inquiry_->sequence, text, different.size() == calls.size() ? "" : kNotInWords);
}

// A rank that is gone, and that another still needs in the operation; -1: none. Who was gone after
// its part keeps nobody waiting, though its last messages may still be on their way for a while.
int Hub::lost_rank(TimeNs now) const {
  for (const auto& answer : inquiry_->answers) {
    if (!answer || answer->about < 0 || answer->about >= settings_.size()) continue;
    const Member& member = members_[static_cast<size_t>(answer->about)];
    if (member.gone && now - member.gone_at >= settings_.answer_within) return answer->about;
  }
  return -1;
}

std::string Hub::missing_ranks(TimeNs now) const {
  std::vector<int> late;
  std::string text;
  for (size_t rank = 0; rank < members_.size(); ++rank) {
    const auto& answer = inquiry_->answers[rank];
    if (members_[rank].gone) continue;
    if (!answer) {
      text += fmt::format("{}rank {} has been silent for {:.1f} s", text.empty() ? "" : "; ", rank,
                          static_cast<double>(now - members_[rank].heard_at) / 1e9);
    } else if (!wire::before(inquiry_->sequence, answer->next)) {
      late.push_back(static_cast<int>(rank));
    }
  }
  if (late.empty()) return text;
  text += fmt::format("{}{} {} not called it", text.empty() ? "" : "; ", ranks_text(late),
                      late.size() == 1 ? "has" : "have");
  // The others may only wait for the one that is furthest behind.
  const auto next = [this](int rank) { return inquiry_->answers[rank]->next; };
  const int last = *std::min_element(late.begin(), late.end(),
                                     [&](int a, int b) { return wire::before(next(a), next(b)); });
  text += late.size() == 1 ? fmt::format(" (its next call is operation {})", next(last))
                           : fmt::format(
                                 "; rank {} is furthest behind: its next call is "
                                 "operation {}",
                                 last, next(last));
  return text;
}

std::string Hub::operation_text() const {
  for (const auto& answer : inquiry_->answers) {
    if (answer && !answer->operation.empty()) return answer->operation;
  }
  return cause_ ? cause_->operation : "";
}

// Where ranks wait for an earlier operation, what is wrong may be wrong there: calls in another
// order differ first in one that some ranks have already ended.
bool Hub::asks_again(TimeNs now) {
  if (inquiry_->first != nullptr) return false;
  uint32_t lowest = inquiry_->sequence;
  for (const auto& answer : inquiry_->answers) {
    const bool waits = answer && wire::before(answer->lowest, answer->next);
    if (waits && wire::before(answer->lowest, lowest)) lowest = answer->lowest;
  }
  if (lowest == inquiry_->sequence) return false;
  auto first = std::make_unique<Inquiry>(std::move(*inquiry_));
  inquiry_ = Inquiry{lowest, now + settings_.answer_within, {}, std::move(first)};
  inquiry_->answers.resize(members_.size());
  tell_all({.kind = MessageKind::kAsk, .sequence = lowest});
  return true;
}

void Hub::decide_late(TimeNs now, const std::string& missing) {
  int silent = -1;
  for (int rank = settings_.size() - 1; rank > 0; --rank) {
    if (members_[rank].gone || inquiry_->answers[rank]) continue;
    if (is_silent(rank, now)) silent = rank;
  }
  const std::string& late = cause_->status.message();
  if (silent >= 0) {
    const Status why = about_silence(silent, now);
    return decide({why.code(), fmt::format("{}. {}", why.message(), late)}, silent);
  }
  decide({cause_->status.code(),
          missing.empty() ? late : fmt::format("{} By now, {}.", late, missing)});
}

void Hub::conclude(TimeNs now) {
  const std::string differing = differing_calls();
  const int lost = lost_rank(now);
  if (!differing.empty()) {
    decide({StatusCode::kMismatch, differing});
  } else if (lost >= 0) {
    const Member& member = members_[lost];
    decide({StatusCode::kPeerLost,
            fmt::format("{} {}, and {} (operation {} of the group) needs it", settings_.names[lost],
                        member.in_good_order ? "closed its communicator" : "is gone",
                        operation_text(), inquiry_->sequence)});
  }
  if (!decided_) {
    if (asks_again(now)) return;
    if (inquiry_->first != nullptr) inquiry_ = Inquiry(std::move(*inquiry_->first));
    const std::string missing = missing_ranks(now);
    if (cause_ && cause_->is_late) {
      decide_late(now, missing);
    } else if (cause_) {
      decide(cause_->status);
    } else if (!missing.empty()) {
      tell_all({.kind = MessageKind::kMissing,
                .sequence = inquiry_->sequence,
                .operation = operation_text(),
                .text = missing});
    }
  }
  inquiry_.reset();
  const std::optional<uint32_t> next = std::exchange(asks_next_, std::nullopt);
  if (next && !decided_ && !cause_) ask(*next, now);
}

void Hub::decide(Status status, int lost) {
  if (decided_) return;
  decided_ = true;
  tell_all({.kind = MessageKind::kDecision, .status = std::move(status), .about = lost});
}

}  // namespace ciuic::control
