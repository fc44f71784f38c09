// SPDX-License-Identifier: Apache-2.0
// control_node.cc: what a rank tells the hub, and what it does at the hub's word or without it.

#include "communicator/control_node.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/log.h"

namespace ciuic::control {

Node::Node(Settings settings, Lines* lines, engine::DataPath* data_path, TimeNs now)
    : settings_(std::move(settings)),
      lines_(lines),
      data_path_(data_path),
      gone_(settings_.names.size(), false),
      lines_lost_(settings_.names.size(), false),
      stepped_at_(now),
      beat_at_(now + settings_.heartbeat),
      hub_heard_at_(now) {
  if (settings_.rank != 0) return;
  hub_ = std::make_unique<Hub>(&settings_, now, [this](int rank, const Message& message) {
    if (rank == 0) {
      to_self_.push_back(message);
    } else {
      lines_->send(rank, message);
    }
  });
}

void Node::say(const Message& message) {
  if (hub_) {
    to_hub_.push_back(message);
  } else if (!hub_lost_) {
    lines_->send(0, message);
  }
}

void Node::end(const Status& status) {
  if (data_path_ == nullptr || ended_) return;
  ended_ = true;
  data_path_->end(status);
}

void Node::report(const engine::Cause& cause, TimeNs now) {
  if (cause_ || ended_) return;
  cause_ = cause;
  cause_at_ = now;
  say({.kind = MessageKind::kCause,
       .status = cause.status,
       .about = cause.about,
       .flag = cause.has_operation,
       .is_late = cause.is_late,
       .sequence = cause.sequence,
       .operation = cause.operation});
}

void Node::leave(TimeNs now) {
  if (data_path_ == nullptr) return;
  const uint32_t next = data_path_->progress_of_group().next;
  data_path_ = nullptr;
  say({.kind = MessageKind::kLeave, .next = next});
  step(now);
}

bool Node::is_over() const { return data_path_ == nullptr && (hub_ == nullptr || hub_->is_over()); }

// A process that was stopped, as with all others of a job at once, cannot tell who was silent
// meanwhile.
void Node::forgive(TimeNs now) {
  const TimeNs away = now - std::exchange(stepped_at_, now);
  if (away <= settings_.silent_after()) return;
  hub_heard_at_ += away;
  cause_at_ += away;
  if (hub_ != nullptr) hub_->shift(away);
}

void Node::step(TimeNs now) {
  forgive(now);
  take_all(now);
  if (data_path_ != nullptr) {
    if (now >= beat_at_) look_at_progress(now);
    look_at_hub(now);
    look_at_cause(now);
  }
  if (hub_ == nullptr) return;
  // Word from the hub to this rank and back settles within a round or two.
  for (hub_->step(now); !to_hub_.empty() || !to_self_.empty(); hub_->step(now)) take_all(now);
}

TimeNs Node::next_step() const {
  TimeNs next = hub_ ? hub_->next_step() : kNever;
  if (data_path_ == nullptr) return next;
  next = std::min(next, beat_at_);
  if (cause_ && !ended_) next = std::min(next, cause_at_ + settings_.decide_within);
  if (!ended_) next = std::min(next, orphans_at_);
  return next;
}

void Node::take_all(TimeNs now) {
  for (; !to_hub_.empty(); to_hub_.pop_front()) hub_->take(0, to_hub_.front(), now);
  for (; !to_self_.empty(); to_self_.pop_front()) take(Message(to_self_.front()), now);
  Message message;
  if (hub_ == nullptr) {
    while (!hub_lost_ && lines_->receive(0, &message)) take(message, now);
    if (!hub_lost_ && lines_->is_lost(0)) on_hub_lost(now);
    return;
  }
  for (int rank = 1; rank < settings_.size(); ++rank) {
    if (lines_lost_[rank]) continue;
    while (lines_->receive(rank, &message)) hub_->take(rank, message, now);
    if (!lines_->is_lost(rank)) continue;
    lines_lost_[rank] = true;
    hub_->line_lost(rank, now);
  }
}

void Node::take(const Message& message, TimeNs now) {
  hub_heard_at_ = now;
  switch (message.kind) {
    case MessageKind::kAsk: answer(message.sequence); break;
    case MessageKind::kGone:
      if (message.about < 0 || message.about >= settings_.size()) break;
      if (message.about == 0 && message.flag) hub_left_ = true;
      gone_[message.about] = true;
      if (data_path_ != nullptr && message.about != settings_.rank) {
        if (message.flag) data_path_->mark_left(message.about);
        data_path_->mark_gone(message.about, message.status);
      }
      break;
    case MessageKind::kMissing: {
      if (data_path_ == nullptr) break;
      const engine::GroupProgress progress = data_path_->progress_of_group();
      if (progress.waits_since == kNever || progress.lowest != message.sequence) break;
      const TimeNs waited = now - progress.waits_since;
      if (waited < settings_.warn_after) break;
      log_warn("rank {} has waited {:.1f} s for {} (operation {} of its group): {}", settings_.rank,
               static_cast<double>(waited) / 1e9, message.operation, message.sequence,
               message.text);
      break;
    }
    case MessageKind::kDecision:
      if (message.about >= 0 && message.about < settings_.size()) gone_[message.about] = true;
      end(message.status);
      break;
    default: break;  // that it is alive; or what a hub does not say
  }
}

void Node::answer(uint32_t sequence) {
  if (data_path_ == nullptr) return;
  const engine::CallRecord record = data_path_->call_record(sequence);
  int needed = -1;
  for (int rank = 0; rank < settings_.size() && needed < 0; ++rank) {
    if (gone_[rank] && data_path_->needs(sequence, rank)) needed = rank;
  }
  const engine::GroupProgress progress = data_path_->progress_of_group();
  say({.kind = MessageKind::kCalled,
       .about = needed,
       .sequence = sequence,
       .next = progress.next,
       .lowest = progress.lowest,
       .fingerprint = record.fingerprint,
       .operation = record.operation == nullptr ? "" : record.operation,
       .text = record.text()});
}

void Node::on_hub_lost(TimeNs now) {
  hub_lost_ = true;
  hub_lost_at_ = now;
  if (hub_left_ || data_path_ == nullptr) return;
  gone_[0] = true;
  hub_status_ = {StatusCode::kPeerLost,
                 fmt::format("{} is gone: its connection ended without a goodbye, so its process "
                             "has died or was killed",
                             settings_.names[0])};
  data_path_->mark_gone(0, hub_status_);
}

// Each rank finds that by itself, and all are to say the same, so it is not what each has measured.
Status Node::of_silent_hub(TimeNs limit) const {
  return {StatusCode::kPeerLost,
          fmt::format("{} has been silent for more than {:.1f} s: its process is stopped, or its "
                      "host or the network to it is down",
                      settings_.names[0], static_cast<double>(limit) / 1e9)};
}

// It finds the word when it runs again, and then knows that it is out.
void Node::give_up_hub(const Status& status) {
  gone_[0] = true;
  say({.kind = MessageKind::kGivenUp, .status = status});
  end(status);
}

void Node::look_at_hub(TimeNs now) {
  if (hub_ != nullptr || ended_) return;
  if (!hub_lost_ && now - hub_heard_at_ > settings_.lost_after) {
    return give_up_hub(of_silent_hub(settings_.lost_after));
  }
  if (hub_status_.ok()) return;
  // What can still finish without rank 0 has its time, from its call on.
  const engine::GroupProgress progress = data_path_->progress_of_group();
  const TimeNs waits_since = std::min(progress.waits_since, progress.message_since);
  if (waits_since == kNever) {
    orphans_at_ = now + settings_.orphan_after / 4;  // nobody says when the next one is called
    return;
  }
  orphans_at_ = std::max(hub_lost_at_, waits_since) + settings_.orphan_after;
  if (now >= orphans_at_) end(hub_status_);
}

void Node::look_at_cause(TimeNs now) {
  if (!cause_ || ended_) return;
  if (hub_lost_) {
    // All others see the hub's end as this rank does, and what follows from it.
    const bool follows = cause_->status.code() == StatusCode::kPeerLost ||
                         (cause_->status.code() == StatusCode::kAborted && cause_->about >= 0);
    return end(!hub_status_.ok() && follows ? hub_status_ : cause_->status);
  }
  if (now < cause_at_ + settings_.decide_within) return;
  const bool silent = hub_ == nullptr && now - hub_heard_at_ > settings_.silent_after();
  if (silent && cause_->is_late) {
    const Status why = of_silent_hub(settings_.silent_after());
    return give_up_hub(
        {why.code(), fmt::format("{}. {}", why.message(), cause_->status.message())});
  }
  end(cause_->status);
}

void Node::look_at_progress(TimeNs now) {
  beat_at_ = now + settings_.heartbeat;
  const engine::GroupProgress progress = data_path_->progress_of_group();
  say({.kind = MessageKind::kAlive, .next = progress.next});
  if (ended_ || progress.has_ended || progress.waits_since == kNever) {
    asks_at_ = kNever;
    return;
  }
  if (asks_at_ == kNever || waits_for_ != progress.lowest) {
    waits_for_ = progress.lowest;
    asks_after_ = settings_.ask_after;
    asks_at_ = progress.waits_since + asks_after_;
  }
  if (now < asks_at_) return;
  say({.kind = MessageKind::kLate, .sequence = waits_for_});
  asks_after_ = std::min(2 * asks_after_, 30 * settings_.heartbeat);
  asks_at_ = now + asks_after_;
}

}  // namespace ciuic::control
