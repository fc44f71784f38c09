// SPDX-License-Identifier: Apache-2.0
// engine.cc: all groups of a process, one pass over them a step.

#include "engine/engine.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/assert.h"
#include "engine/group.h"

namespace ciuic::engine {

// Passes for which an arrived chunk may occupy its sender's slot while its step waits for others.
// The limit only has to end a standstill in which slots are held round a circle of ranks.
static constexpr int kHoldPasses = 64;

// A failed link says so at once when it moves; one that stands still is asked every so often.
static constexpr uint32_t kPassesBetweenLooks = 64;

struct Engine::State {
  memory::StagingPool* staging = nullptr;
  std::vector<std::unique_ptr<Group>> groups;
  int causes = 0;
};

Engine::Engine(memory::StagingPool* staging) : state_(std::make_unique<State>()) {
  state_->staging = staging;
}

Engine::~Engine() {
  while (!state_->groups.empty()) {
    [[maybe_unused]] const Status unheard = remove_group(state_->groups.back().get());
  }
}

Group* Engine::add_group(GroupConfig config) {
  auto group = std::make_unique<Group>();
  group->staging = state_->staging;
  group->causes = &state_->causes;
  group->peers.resize(config.links.size());
  for (size_t rank = 0; rank < config.links.size(); ++rank) {
    group->peers[rank].link = std::move(config.links[rank]);
    group->peers[rank].acked = config.first_sequence;
  }
  group->next_sequence = group->lowest = config.first_sequence;
  config.links.clear();
  group->config = std::move(config);
  state_->groups.push_back(std::move(group));
  return state_->groups.back().get();
}

Status Engine::remove_group(Group* group) {
  if (group->status.ok()) group->config.trace.closed();  // else it has failed, or is about to
  // Peers learn by the links' goodbye; only what is in flight here ends in an error.
  for (Peer& peer : group->peers) {
    if (peer.link != nullptr) peer.link->progress();
  }
  Status unheard = group->is_halted || group->is_told ? Status() : group->status;
  const bool busy = group->unended > 0;
  if (!busy) {
    for (Peer& peer : group->peers) {
      if (peer.link != nullptr) peer.link->close();
      peer.gone = true;
    }
  }
  engine::end_group(*group, group->is_halted ? group->status
                                             : Status(StatusCode::kAborted,
                                                      fmt::format("rank {} closed its communicator",
                                                                  group->config.rank)));
  group->config.trace.closed();
  std::erase_if(state_->groups, [group](const auto& held) { return held.get() == group; });
  return unheard;
}

void Engine::report(Group* group, const Cause& cause) { engine::report(*group, cause); }

bool Engine::take_cause(Group* group, Cause* cause) {
  if (!std::exchange(group->cause_waits, false)) return false;
  --state_->causes;
  *cause = group->cause;
  return true;
}

bool Engine::has_causes() const { return state_->causes > 0; }

void Engine::end_group(Group* group, const Status& status) { engine::end_group(*group, status); }

void Engine::mark_gone(Group* group, int peer, const Status& why) {
  Peer& gone = group->peers[static_cast<size_t>(peer)];
  if (!group->status.ok() || gone.link == nullptr || gone.gone) return;
  gone.link->peer_gone(why);
  check_links(*group);
}

const Status& Engine::group_status(const Group* group) const { return group->status; }

WorkState* Engine::submit(Group* group, Request request, TimeNs now,
                          std::shared_ptr<WorkDriver> driver) {
  auto* work = new WorkState(std::move(driver));
  submit_part(group, std::move(request), now, work);
  return work;
}

void Engine::submit_part(Group* group, Request&& request, TimeNs now, WorkState* work) {
  if (!group->status.ok() && !group->is_halted) {
    group->is_told = true;
    return work->finish(group->status);
  }
  if (request.kind != RequestKind::kCollective) {
    return post(*group, std::move(request), work, now);
  }
  bind(*group, std::move(request), work, now);
  if (!group->is_halted) start_queued(*group, now);
}

static bool step_group(Group& group, TimeNs now) {
  bool any = false;
  for (size_t rank = 0; rank < group.peers.size() && group.status.ok(); ++rank) {
    Peer& peer = group.peers[rank];
    if (peer.link == nullptr) continue;
    const int index = static_cast<int>(rank);
    if (peer.link->progress()) any = true;
    any |= drain(group, index);
    if (group.status.ok()) any |= retire_sends(group, index) | flush_control(group, index);
  }
  for (uint32_t i = 0, first = group.lowest; i < kMaxActive && group.status.ok(); ++i) {
    Operation* operation = group.find(first + i);
    if (operation == nullptr) continue;
    any |= run(group, *operation);
    if (!group.status.ok()) return true;
    if (operation->unfinished == 0) {
      finish(group, *operation);
      any = true;
      continue;
    }
    if (operation->held_slots == 0) {
      operation->held_passes = 0;
    } else if (++operation->held_passes > kHoldPasses) {
      stage_held(group, *operation);
    }
  }
  if (!group.status.ok()) return true;
  if (group.messages.sends > 0) any |= run_sends(group);
  if (!group.queued.empty()) start_queued(group, now);
  for (size_t rank = 0; rank < group.peers.size() && group.status.ok(); ++rank) {
    if (!group.peers[rank].control.empty()) any |= flush_control(group, static_cast<int>(rank));
  }
  if (any || ++group.passes % kPassesBetweenLooks == 0) check_links(group);
  check_gone(group, !any, now);
  any |= check_deadlines(group, now);
  return any || !group.status.ok();
}

bool Engine::step(TimeNs now) {
  bool any = false;
  for (const auto& group : state_->groups) {
    if (group->status.ok()) any |= step_group(*group, now);
  }
  return any;
}

void Engine::before_sleep() {
  for (const auto& group : state_->groups) {
    for (Operation* operation : group->active) {
      if (operation != nullptr && operation->held_slots > 0) stage_held(*group, *operation);
    }
    group->passes = kPassesBetweenLooks - 1;
  }
}

int Engine::active() const {
  int count = 0;
  for (const auto& group : state_->groups) count += group->unended;
  return count;
}

TimeNs Engine::next_deadline() const {
  TimeNs next = kNever;
  for (const auto& group : state_->groups) {
    if (!group->is_halted) next = std::min(next, group->next_deadline);
  }
  return next;
}

CallRecord Engine::call_record(const Group* group, uint32_t sequence) const {
  return call_of(*group, sequence);
}

GroupProgress Engine::progress(const Group* group) const {
  GroupProgress progress{.lowest = group->lowest,
                         .next = group->next_sequence,
                         .has_ended = !group->status.ok() && !group->is_halted,
                         .waits_since = kNever};
  const Operation* oldest = group->find(group->lowest);
  if (oldest != nullptr) progress.waits_since = oldest->called_at;
  progress.message_since = oldest_message(*group);
  return progress;
}

bool Engine::needs(const Group* group, uint32_t sequence, int peer) const {
  const Operation* operation = group->find(sequence);
  if (operation == nullptr || group->peers[static_cast<size_t>(peer)].link == nullptr) return false;
  return engine::needs(*group, *operation, peer);
}

size_t Engine::link_bytes(const Group* group) const {
  size_t bytes = 0;
  for (const Peer& peer : group->peers) {
    if (peer.link != nullptr) bytes += peer.link->buffer_bytes();
  }
  return bytes;
}

}  // namespace ciuic::engine
