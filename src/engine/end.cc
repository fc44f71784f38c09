// SPDX-License-Identifier: Apache-2.0
// end.cc: how operations and groups end, well or not.

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>

#include "engine/group.h"

namespace ciuic::engine {

// For so long at most an operation that needs a peer that is gone waits for earlier ones.
static constexpr TimeNs kGoneGrace = 250'000'000;

static void give_back(Group& group, Operation& operation) {
  for (size_t s = 0; s < operation.streams.size(); ++s) {
    Ring<Chunk>& arrived = operation.streams[s].arrived;
    for (; !arrived.empty(); arrived.pop()) {
      Chunk& chunk = arrived.front();
      if (chunk.staged) {
        group.staging->give_back(const_cast<std::byte*>(chunk.data), chunk.bytes);
      }
    }
  }
  if (operation.scratch != nullptr) {
    group.staging->give_back(operation.scratch, operation.scratch_bytes);
    operation.scratch = nullptr;
  }
}

static void end(Group& group, Operation* operation, Status status) {
  if (!operation->request.ends_elsewhere) {
    group.config.trace.ended(operation->sequence, status.code());
  }
  WorkState* work = operation->work;
  operation->request.plan.reset();
  operation->request.counts.reset();
  operation->request.gate.reset();
  operation->program.reset();
  operation->work = nullptr;
  group.spare.emplace_back(operation);
  --group.unended;
  work->finish(std::move(status));
  work->release();
}

// Counts the operation for the peers that sent something, and tells those that need to know.
static void acknowledge(Group& group, const Operation& operation) {
  const auto& streams = operation.request.plan->streams;
  for (size_t s = 0; s < streams.size(); ++s) {
    if (streams[s].receives == 0) continue;
    Peer& from = group.peers[streams[s].peer];
    if (from.unacked == 0 || wire::before(from.unacked_last, operation.sequence)) {
      from.unacked_last = operation.sequence;
    }
    ++from.unacked;
  }
}

static void tell_acked(Group& group) {
  for (Peer& peer : group.peers) {
    if (peer.unacked < static_cast<int>(kEagerOperations / 2)) continue;
    if (peer.link == nullptr || !peer.control.empty()) continue;  // control carries it, too
    peer.control.push(control(group, wire::MessageType::kAck, group.lowest));
  }
}

void finish(Group& group, Operation& operation) {
  acknowledge(group, operation);
  give_back(group, operation);
  group.active[operation.sequence % kMaxActive] = nullptr;
  const bool was_lowest = operation.sequence == group.lowest;
  end(group, &operation, Status());
  if (!was_lowest) return;
  const uint32_t first = first_queued(group);
  while (group.lowest != first && group.find(group.lowest) == nullptr) ++group.lowest;
  tell_acked(group);
}

static void send_abort(Group& group, const std::string& text) {
  const Status& status = group.status;
  wire::Header header = control(group, wire::MessageType::kAbort, group.lowest);
  header.chunk = static_cast<uint32_t>(status.code());
  header.payload_bytes = static_cast<uint32_t>(text.size());
  header.message_bytes = text.size();
  header.acked = group.lowest;
  for (Peer& peer : group.peers) {
    if (peer.link == nullptr || !peer.link->status().ok() || peer.gone) continue;
    if (!peer.link->can_send(text.size())) continue;
    peer.link->send(header, reinterpret_cast<const std::byte*>(text.data()), nullptr);
    peer.link->progress();
  }
}

void report(Group& group, Cause cause) {
  if (!group.status.ok()) return;
  if (!group.config.is_arbitrated) return end_group(group, std::move(cause.status));
  group.status = cause.status;
  group.is_halted = group.cause_waits = true;
  ++*group.causes;
  group.cause = std::move(cause);
  group.next_deadline = kNever;
}

void end_group(Group& group, Status status) {
  if (!group.status.ok() && !group.is_halted) return;
  group.is_halted = false;
  if (std::exchange(group.cause_waits, false)) --*group.causes;
  group.is_told = group.unended > 0;
  group.status = std::move(status);
  group.config.trace.failed(group.status);
  const std::string text = group.status.message().substr(0, 1024);
  send_abort(group, text);
  // After this no link reads the text, or writes to a buffer of an operation, any more.
  for (Peer& peer : group.peers) {
    if (peer.link != nullptr) peer.link->close();
    if (peer.placed.staged) {
      group.staging->give_back(const_cast<std::byte*>(peer.placed.data), peer.placed.bytes);
    }
    peer.placed = Chunk();
    peer.placing = false;
    peer.in_flight.clear();
    peer.control.clear();
  }
  for (EarlyChunk& early : group.early) {
    if (early.chunk.staged) {
      group.staging->give_back(const_cast<std::byte*>(early.chunk.data), early.chunk.bytes);
    }
  }
  group.early.clear();
  for (uint32_t i = 0; i < kMaxActive; ++i) {
    Operation*& operation = group.active[(group.lowest + i) % kMaxActive];
    if (operation == nullptr) continue;
    give_back(group, *operation);
    end(group, std::exchange(operation, nullptr), group.status);
  }
  for (Operation* operation : group.queued) end(group, operation, group.status);
  group.queued.clear();
  end_messages(group);
  group.next_deadline = kNever;
}

static std::string ranks_text(const std::set<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (int rank : ranks) {
    if (text.back() != ' ') text += ", ";
    text += std::to_string(rank);
  }
  return text;
}

// Says whom an operation waits for: peers that are not known to have started it, else all whose
// next message, or leave to send, has not come.
static std::string waits_for(const Operation& operation) {
  std::set<int> not_started;
  std::set<int> waited;
  const auto& steps = operation.request.plan->steps;
  for (size_t i = 0; i < steps.size(); ++i) {
    if (operation.steps[i].done == operation.steps[i].chunks) continue;
    for (const plan::StreamPlace& place : steps[i].places) {
      const StreamState& stream = operation.streams[place.stream];
      const int peer = operation.request.plan->streams[place.stream].peer;
      const bool sends = steps[i].kind == plan::StepKind::kSend;
      if (!stream.heard) not_started.insert(peer);
      if (sends ? stream.send_position == place.position
                : stream.receive_position == place.position && stream.arrived.empty()) {
        waited.insert(peer);
      }
    }
  }
  if (!not_started.empty()) {
    return ranks_text(not_started) + " had not been heard from in this operation";
  }
  return "still waiting for " + ranks_text(waited);
}

static Status timed_out(const Group& group, const Operation& late) {
  const Operation* waiting = group.find(late.sequence);
  for (uint32_t i = 0; waiting == nullptr && i < kMaxActive; ++i) {
    waiting = group.find(group.lowest + i);
  }
  std::string why = waiting == nullptr ? "it was never started" : waits_for(*waiting);
  if (waiting != nullptr && waiting->sequence != late.sequence) {
    why =
        fmt::format("it waited its turn behind operation {}, in which {}", waiting->sequence, why);
  }
  return {
      StatusCode::kTimeout,
      fmt::format("{} (operation {} of its group, on rank {}) did not end within {} ms: {}. Look "
                  "at what those ranks do; timeout_ms (timeout_s in Python) allows more time.",
                  late.request.operation, late.sequence, group.config.rank, late.request.timeout_ms,
                  why)};
}

void out_of_memory(Group& group, size_t bytes) {
  const Status status = group.staging->no_memory(bytes);
  report(group, {.status = {status.code(),
                            fmt::format("rank {}: {}", group.config.rank, status.message())}});
}

bool check_deadlines(Group& group, TimeNs now) {
  if (now < group.next_deadline) return false;
  group.next_deadline = kNever;
  const Operation* late = nullptr;
  const auto look = [&](const Operation* operation) {
    if (operation == nullptr) return;
    const TimeNs deadline = operation->request.deadline;
    if (deadline <= now && (late == nullptr || deadline < late->request.deadline)) late = operation;
    group.next_deadline = std::min(group.next_deadline, deadline);
  };
  bool shown = false;
  for (uint32_t i = 0; i < kMaxActive; ++i) {
    Operation* operation = group.active[(group.lowest + i) % kMaxActive];
    look(operation);
    if (operation == nullptr) continue;
    if (operation->shows_at <= now) {
      show_call(group, *operation);
      shown = true;
    }
    group.next_deadline = std::min(group.next_deadline, operation->shows_at);
  }
  for (const Operation* operation : group.queued) look(operation);
  Cause cause;
  if (find_late_message(group, now, &group.next_deadline, &cause) && late == nullptr) {
    report(group, std::move(cause));
    return shown;
  }
  if (late == nullptr) return shown;
  report(group, {.status = timed_out(group, *late),
                 .has_operation = true,
                 .sequence = late->sequence,
                 .operation = late->request.operation,
                 .is_late = true});
  return shown;
}

void check_links(Group& group) {
  for (size_t rank = 0; rank < group.peers.size() && group.status.ok(); ++rank) {
    Peer& peer = group.peers[rank];
    if (peer.link == nullptr || peer.gone || peer.link->status().ok()) continue;
    note_gone(group, static_cast<int>(rank));
  }
}

// A peer may go, with a goodbye or without, once it has done its part in an operation: others may
// still be at it.
bool needs(const Group& group, const Operation& operation, int peer) {
  const auto& streams = operation.request.plan->streams;
  for (int s = operation.program->first_stream[peer]; s >= 0;
       s = operation.program->next_stream[s]) {
    const StreamState& stream = operation.streams[s];
    if (stream.arrive_position < streams[s].receives || stream.send_position < streams[s].sends) {
      return true;
    }
  }
  // Without a goodbye, what is on its way may be lost.
  const Peer& to = group.peers[peer];
  if (to.link->status().ok()) return false;
  for (size_t i = 0; i < to.in_flight.size(); ++i) {
    if (to.in_flight[i].sequence == operation.sequence) return true;
  }
  return false;
}

void note_gone(Group& group, int peer) {
  group.peers[peer].gone = true;
  group.any_gone = group.checks_gone = true;
}

static Cause lost_in(const Group& group, const Operation& operation, int peer) {
  const Status& status = group.peers[peer].link->status();
  const char* name = operation.request.operation;
  Cause cause{.status = {},
              .about = peer,
              .has_operation = true,
              .sequence = operation.sequence,
              .operation = name};
  if (status.ok()) {
    cause.status = {StatusCode::kPeerLost,
                    fmt::format("rank {} closed its communicator and took no part in {} "
                                "(operation {})",
                                peer, name, operation.sequence)};
  } else {
    cause.status = {status.code(),
                    fmt::format("{}, while rank {} was in {} (operation {})", status.message(),
                                group.config.rank, name, operation.sequence)};
  }
  return cause;
}

static int gone_that_it_needs(const Group& group, const Operation& operation) {
  for (size_t peer = 0; peer < group.peers.size(); ++peer) {
    const int rank = static_cast<int>(peer);
    if (group.peers[peer].gone && needs(group, operation, rank)) return rank;
  }
  return -1;
}

void check_gone(Group& group, bool is_idle, TimeNs now) {
  if (!group.checks_gone || !group.status.ok()) return;
  bool earlier = false;  // one may yet end well
  for (uint32_t i = 0; i < kMaxActive; ++i) {
    const Operation* operation = group.find(group.lowest + i);
    if (operation == nullptr) continue;
    const int peer = gone_that_it_needs(group, *operation);
    if (peer < 0) {
      earlier = true;
      continue;
    }
    if (earlier && !is_idle) {
      if (group.gone_since == kNever && now > 0) group.gone_since = now;
      if (now < group.gone_since || now - group.gone_since < kGoneGrace) return;
    }
    return report(group, lost_in(group, *operation, peer));
  }
  if (group.messages.unended() > 0) {
    if (!is_idle) return;  // what has come is used first
    Cause cause;
    if (find_lost_message(group, &cause)) return report(group, std::move(cause));
  }
  group.checks_gone = false;
  group.gone_since = kNever;
}

}  // namespace ciuic::engine
