// SPDX-License-Identifier: Apache-2.0
// member.cc: hands on between engine and node, and records what the node does.

#include "sim/member.h"

#include <fmt/format.h>

#include <algorithm>

namespace ciuic::sim {

Member::Member(MemberOptions options)
    : world_(options.world),
      judge_(options.judge),
      engine_(options.engine),
      process_(options.process),
      control_(options.control),
      record_(options.record),
      bug_(options.bug),
      is_target_(options.is_target) {
  options.config.is_arbitrated = options.settings.has_value();
  record_->knew_gone_at.assign(options.config.links.size(), kNever);
  record_->told_dead_at.assign(options.config.links.size(), kNever);
  handle_ = engine_->add_group(std::move(options.config));
  if (!options.settings) return;
  node_.emplace(std::move(*options.settings), options.lines, this, world_->now());
  world_->wake(control_, world_->now());
}

engine::WorkState* Member::submit(engine::Request request, TimeNs now) {
  engine::WorkState* work = engine_->submit(handle_, std::move(request), now);
  hand_on_cause();
  return work;
}

void Member::abort(const std::string& reason) {
  if (is_closed() || bug_ == Bug::kAbortIgnored) return;
  engine_->report(handle_, {.status = {StatusCode::kAborted, reason}});
  hand_on_cause();
  world_->wake(process_, world_->now());
}

void Member::hand_on_cause() {
  engine::Cause cause;
  if (is_closed() || !engine_->has_causes() || !engine_->take_cause(handle_, &cause)) return;
  if (!reported_) reported_ = std::move(cause);
  world_->wake(control_, world_->now());
}

void Member::close(TimeNs now) {
  if (is_closed()) return;
  if (node_) {
    node_->leave(now);
    world_->wake(control_, now);
  }
  record_->closed_at = now;
  record_->unheard = engine_->remove_group(handle_);
  handle_ = nullptr;
}

void Member::forsake() {
  if (is_closed()) return;
  (void)engine_->remove_group(handle_);
  handle_ = nullptr;
}

TimeNs Member::step_control(TimeNs now) {
  if (!node_) return kNever;
  if (reported_) {
    if (!is_closed()) node_->report(*reported_, now);
    reported_.reset();
  }
  node_->step(now);
  note_gone(now);
  return node_->is_over() ? kNever : node_->next_step();
}

void Member::note_gone(TimeNs now) {
  const std::vector<bool>& gone = node_->gone();
  for (size_t rank = 0; rank < gone.size(); ++rank) {
    if (gone[rank]) record_->knew_gone_at[rank] = std::min(record_->knew_gone_at[rank], now);
  }
}

void Member::end(const Status& status) {
  if (is_closed()) return judge_->fail("a node ended its group after it had left");
  if (status.ok()) judge_->fail("a node ended its group without an error");
  ++record_->ends;
  if (bug_ == Bug::kEndsTwice && is_target_) ++record_->ends;
  record_->ended_at = world_->now();
  record_->end = status;
  engine_->end_group(handle_, status);
  world_->wake(process_, world_->now());
}

void Member::mark_gone(int rank, const Status& why) {
  if (is_closed()) return judge_->fail("a node told of the dead after it had left");
  if (why.message().find("closed its communicator") == std::string::npos) {
    TimeNs& told_at = record_->told_dead_at[static_cast<size_t>(rank)];
    told_at = std::min(told_at, world_->now());
  }
  engine_->mark_gone(handle_, rank, why);
  if (bug_ == Bug::kGoneIsEnd) engine_->report(handle_, {.status = why, .about = rank});
  hand_on_cause();
  world_->wake(process_, world_->now());
}

engine::CallRecord Member::call_record(uint32_t sequence) {
  return is_closed() ? engine::CallRecord() : engine_->call_record(handle_, sequence);
}

engine::GroupProgress Member::progress_of_group() {
  if (is_closed()) return {.has_ended = true};
  return engine_->progress(handle_);
}

bool Member::needs(uint32_t sequence, int rank) {
  if (is_closed()) return false;
  for (int i = 0; i < 16 && engine_->step(world_->now()); ++i) {
  }
  hand_on_cause();
  world_->wake(process_, world_->now());
  return engine_->needs(handle_, sequence, rank);
}

}  // namespace ciuic::sim
