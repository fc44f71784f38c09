// SPDX-License-Identifier: Apache-2.0
// receive.cc: takes messages off the links and brings them to their operations.
//
// Whatever arrives is taken at once and checked against what the plan expects there, before a byte
// of it is placed. It goes straight to its destination where its step can run; a chunk that is to
// be reduced, or is early, waits in its stream: for a short time in the peer's slot, else staged.

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/assert.h"
#include "engine/announcement.h"
#include "engine/group.h"

namespace ciuic::engine {

// Messages of one peer in a pass: one that sends without end must not keep this rank from its other
// peers, nor deadlines from passing.
static constexpr int kTakenAtOnce = 256;

void release(Group& group, int peer, Chunk* chunk) {
  if (chunk->staged) {
    group.staging->give_back(const_cast<std::byte*>(chunk->data), chunk->bytes);
  } else if (chunk->data != nullptr && group.status.ok()) {  // a closed link took all back
    group.peers[peer].link->release(chunk->token);
  }
  *chunk = Chunk();
}

static void report_withdrawn(Group& group, int peer) {
  const Status& status = group.peers[peer].link->status();
  report(group, {.status = {StatusCode::kPeerLost,
                            status.ok() ? fmt::format("rank {} left the group while rank {} read "
                                                      "from its memory",
                                                      peer, group.config.rank)
                                        : status.message()},
                 .about = peer});
}

bool is_intact(Group& group, int peer, const Chunk& chunk) {
  if (!chunk.borrowed || group.peers[peer].link->is_intact(chunk.token)) [[likely]]
    return true;
  report_withdrawn(group, peer);
  return false;
}

bool stage(Group& group, int peer, Chunk* chunk) {
  if (chunk->staged || chunk->data == nullptr) return true;
  std::byte* copy = group.staging->take(chunk->bytes);
  if (copy == nullptr) {
    out_of_memory(group, chunk->bytes);
    release(group, peer, chunk);
    return false;
  }
  std::memcpy(copy, chunk->data, chunk->bytes);
  const uint32_t bytes = chunk->bytes;
  if (!is_intact(group, peer, *chunk)) {
    group.staging->give_back(copy, bytes);
    return false;
  }
  release(group, peer, chunk);
  *chunk = {.data = copy, .bytes = bytes, .staged = true};
  return true;
}

// The two ranks' calls differ, or one of them does what no call would.
static void report_mismatch(Group& group, int peer, uint32_t sequence, const char* operation,
                            std::string what) {
  report(group, {.status = {StatusCode::kMismatch, std::move(what)},
                 .about = peer,
                 .has_operation = true,
                 .sequence = sequence,
                 .operation = operation});
}

static void differs(Group& group, int peer, const CallRecord& own, const std::string& what) {
  report_mismatch(
      group, peer, own.sequence, own.operation,
      fmt::format("{} (operation {} of its group) is not the same call on rank {} and rank {}: {}. "
                  "All ranks must call the same operations in the same order, with the same "
                  "dtype, count, op and root.",
                  own.operation, own.sequence, std::min(group.config.rank, peer),
                  std::max(group.config.rank, peer), what));
}

static void differs(Group& group, int peer, const Operation& operation, const std::string& what) {
  differs(group, peer, call_of(operation), what);
}

static bool is_alike(Group& group, int peer, const CallRecord& own, const CallRecord& other) {
  if (own.fingerprint == other.fingerprint) return true;
  std::string calls = fmt::format("rank {} called {}", group.config.rank, own.text());
  if (other.operation == nullptr) {
    calls = "the fingerprints of the two calls differ; " + calls;
  } else {
    const std::string of_peer = fmt::format("rank {} called {}", peer, other.text());
    calls = group.config.rank < peer ? calls + ", " + of_peer : of_peer + ", " + calls;
    if (own.text() == other.text()) calls += ", yet their fingerprints differ";
  }
  differs(group, peer, own, calls);
  return false;
}

// What the plan expects next on a stream.
struct Expected {
  const plan::Step* step = nullptr;
  int step_index = 0;
  size_t message_bytes = 0;
  size_t offset = 0;
  size_t bytes = 0;
};

static Expected expected_on(const Operation& operation, int stream) {
  const StreamState& state = operation.streams[stream];
  const auto& receives = operation.program->receives[stream];
  if (state.arrive_position >= static_cast<int>(receives.size())) return {};
  Expected expected;
  expected.step_index = receives[state.arrive_position].step;
  expected.step = &operation.request.plan->steps[expected.step_index];
  expected.message_bytes = operation.steps[expected.step_index].target.size;
  expected.offset = state.arrive_chunk * operation.chunk_bytes;
  expected.bytes = std::min(operation.chunk_bytes, expected.message_bytes - expected.offset);
  return expected;
}

// Whether the message is the one that the plan expects; else the group has failed.
static bool is_expected(Group& group, int peer, Operation& operation, int stream,
                        const wire::Header& header) {
  if (header.fingerprint != operation.request.fingerprint) {
    return is_alike(group, peer, call_of(operation), {.fingerprint = header.fingerprint});
  }
  const Expected expected = stream < 0 ? Expected() : expected_on(operation, stream);
  if (expected.step == nullptr) {
    differs(group, peer, operation, "it sends a message that is not expected here");
    return false;
  }
  const StreamState& state = operation.streams[stream];
  if (header.step != static_cast<uint16_t>(state.arrive_position) ||
      header.message_bytes != expected.message_bytes || header.chunk != state.arrive_chunk ||
      header.payload_bytes != expected.bytes) {
    const size_t element = size_of(operation.request.dtype);
    differs(group, peer, operation,
            operation.request.counts != nullptr
                ? fmt::format("rank {} gives {} elements, rank {} expects {}", peer,
                              header.message_bytes / element, group.config.rank,
                              expected.message_bytes / element)
                : fmt::format("expected {} bytes as message {}, {} came", expected.message_bytes,
                              state.arrive_position, header.message_bytes));
    return false;
  }
  return true;
}

static void advance_arrival(const Operation& operation, StreamState* state, int step) {
  if (++state->arrive_chunk == operation.steps[step].chunks) {
    state->arrive_chunk = 0;
    ++state->arrive_position;
  }
}

static void hear(Operation& operation, int peer) {
  for (int s = operation.program->first_stream[peer]; s >= 0;
       s = operation.program->next_stream[s]) {
    operation.streams[s].heard = true;
  }
}

// Takes a chunk whose bytes are here into its stream. False: the group has failed.
static bool enqueue(Group& group, int peer, Operation& operation, const wire::Header& header,
                    Chunk chunk) {
  const int stream = stream_of(*operation.program, peer, header.lane);
  if (!is_expected(group, peer, operation, stream, header)) {
    release(group, peer, &chunk);
    return false;
  }
  hear(operation, peer);
  StreamState& state = operation.streams[stream];
  advance_arrival(operation, &state,
                  operation.program->receives[stream][state.arrive_position].step);
  if (!chunk.staged && chunk.data != nullptr) ++operation.held_slots;
  state.arrived.push(chunk);
  return true;
}

// Refuses what may not come yet: a large message of an operation that this rank has not announced.
static bool may_come(Group& group, int peer, const wire::Header& header) {
  if (header.payload_bytes <= kEagerBytes) return true;
  report_mismatch(
      group, peer, header.sequence, "",
      fmt::format("rank {} sent {} bytes of operation {}, which rank {} has not started", peer,
                  header.payload_bytes, header.sequence, group.config.rank));
  return false;
}

static void data_complete(Group& group, int peer, const wire::Header& header, Chunk chunk) {
  if (Operation* operation = group.find(header.sequence)) {
    enqueue(group, peer, *operation, header, chunk);
    return;
  }
  if (wire::before(header.sequence, group.lowest)) {
    release(group, peer, &chunk);
    report_mismatch(
        group, peer, header.sequence, "",
        fmt::format("rank {} sent a message of operation {}, which has ended on rank {}", peer,
                    header.sequence, group.config.rank));
    return;
  }
  if (!may_come(group, peer, header)) return;
  if (!stage(group, peer, &chunk)) return;
  group.early.push_back({peer, header, chunk});
  const bool has_ended = header.sequence - group.lowest < first_queued(group) - group.lowest;
  if (has_ended || ++group.peers[peer].early > static_cast<int>(kEagerOperations)) {
    report_mismatch(group, peer, header.sequence, "",
                    fmt::format("rank {} sent a message of operation {} while rank {} is at {}: {}",
                                peer, header.sequence, group.config.rank, group.lowest,
                                has_ended ? "it has ended" : "it may not send so many ahead"));
  }
}

// Whether the next chunk of the stream may be read straight into its destination.
static bool can_place(const Operation& operation, int stream, const Expected& expected) {
  if (expected.step->kind != plan::StepKind::kReceive) return false;
  const StreamState& state = operation.streams[stream];
  if (!state.arrived.empty() || state.receive_position != state.arrive_position) return false;
  return may_start(operation, expected.step_index, state.arrive_chunk);
}

// A payload waits to be read: says where it goes.
static void place(Group& group, int peer, const wire::Header& header) {
  Peer& from = group.peers[peer];
  from.placing = true;
  from.placing_direct = false;
  if (is_point_to_point(header.type)) {
    if (std::byte* destination = place_message(group, peer, header)) {
      from.placing_direct = true;
      return from.link->place(destination);
    }
    if (!group.status.ok()) return;
  }
  if (Operation* operation = group.find(header.sequence);
      operation != nullptr && header.type == wire::MessageType::kData) {
    const int stream = stream_of(*operation->program, peer, header.lane);
    if (!is_expected(group, peer, *operation, stream, header)) return;
    const Expected expected = expected_on(*operation, stream);
    if (can_place(*operation, stream, expected)) {
      from.placing_direct = true;
      from.link->place(operation->steps[expected.step_index].target.data + expected.offset);
      return;
    }
  }
  if (header.type == wire::MessageType::kData && group.find(header.sequence) == nullptr &&
      !may_come(group, peer, header)) {
    return;
  }
  std::byte* memory = group.staging->take(header.payload_bytes);
  if (memory == nullptr) return out_of_memory(group, header.payload_bytes);
  from.placed = {.data = memory, .bytes = header.payload_bytes, .staged = true};
  from.link->place(memory);
}

// A payload that was read into the output itself.
static void placed_directly(Group& group, int peer, const wire::Header& header) {
  Operation& operation = *group.find(header.sequence);
  const int stream = stream_of(*operation.program, peer, header.lane);
  hear(operation, peer);
  StreamState& state = operation.streams[stream];
  const int step = operation.program->receives[stream][state.arrive_position].step;
  advance_arrival(operation, &state, step);
  state.arrived.push(Chunk());
  use_up(group, operation, stream);
  chunk_done(operation, step);
}

static Chunk chunk_of(const transport::Arrival& arrival) {
  return {.data = arrival.data,
          .bytes = arrival.header.payload_bytes,
          .borrowed = arrival.borrowed,
          .token = arrival.token};
}

static void on_message(Group& group, int peer, const transport::Arrival& arrival) {
  Peer& from = group.peers[peer];
  Chunk chunk = chunk_of(arrival);
  if (std::exchange(from.placing, false)) {
    if (from.placing_direct) return message_placed(group, peer, arrival.header);
    chunk = std::exchange(from.placed, Chunk());
  }
  take_message(group, peer, arrival.header, chunk);
}

static void on_data(Group& group, int peer, const transport::Arrival& arrival) {
  const wire::Header& header = arrival.header;
  Peer& from = group.peers[peer];
  if (from.placing) {
    from.placing = false;
    if (from.placing_direct) return placed_directly(group, peer, header);
    return data_complete(group, peer, header, std::exchange(from.placed, Chunk()));
  }
  data_complete(group, peer, header, chunk_of(arrival));
}

// An operation shows itself, too, while it waits to send what is eager; and may then end before
// this rank has started it.
static constexpr size_t kMostHeardEarly = kMaxActive + kEagerOperations;

static void on_announce(Group& group, int peer, const wire::Header& header) {
  const CallRecord own = call_of(group, header.sequence);
  if (own.operation != nullptr && !is_alike(group, peer, own, described(header))) return;
  if (Operation* operation = group.find(header.sequence)) return hear(*operation, peer);
  if (wire::before(header.sequence, first_queued(group))) return;  // it has ended here
  auto& early = group.peers[peer].heard_early;
  const auto same = [&](const wire::Header& heard) { return heard.sequence == header.sequence; };
  if (std::any_of(early.begin(), early.end(), same)) return;
  early.push_back(header);
  if (early.size() > kMostHeardEarly) {
    report_mismatch(group, peer, header.sequence, "",
                    fmt::format("rank {} announced {} operations at once; {} are allowed", peer,
                                early.size(), kMostHeardEarly));
  }
}

static void on_credit(Group& group, int peer, const wire::Header& header) {
  Operation* operation = group.find(header.sequence);
  if (operation == nullptr) return;  // everything was sent, and it has ended here
  const int stream = stream_of(*operation->program, peer, header.lane);
  if (stream < 0) return;
  int& window = operation->streams[stream].window;
  if (header.chunk > static_cast<uint32_t>(group.config.window - window)) {
    return differs(group, peer, *operation, "it has taken more chunks than were sent");
  }
  window += static_cast<int>(header.chunk);
}

static void on_abort(Group& group, int peer, const transport::Arrival& arrival) {
  Peer& from = group.peers[peer];
  Chunk chunk = chunk_of(arrival);
  if (from.placing) chunk = std::exchange(from.placed, Chunk());
  from.placing = false;
  std::string text(reinterpret_cast<const char*>(chunk.data), chunk.data ? chunk.bytes : 0);
  release(group, peer, &chunk);
  auto code = StatusCode::kAborted;
  const auto sent = static_cast<StatusCode>(arrival.header.chunk);
  if (sent > StatusCode::kOk && sent <= StatusCode::kSystem) code = sent;
  report(group, {.status = {code, std::move(text)}, .about = peer});
}

static void take_acked(Peer* peer, uint32_t acked) {
  if (!wire::before(peer->acked, acked)) return;
  peer->acked = acked;
  while (!peer->eager.empty() && wire::before(peer->eager.front(), acked)) peer->eager.pop();
}

static void take(Group& group, int peer, const transport::Arrival& arrival) {
  const wire::Header& header = arrival.header;
  Peer& from = group.peers[peer];
  if (header.epoch != group.config.epoch || header.group != group.config.id) {
    return report(
        group,
        {.status = {
             StatusCode::kMismatch,
             fmt::format("rank {} sent a message of epoch {}, group {}; this is epoch {}, "
                         "group {}",
                         peer, header.epoch, header.group, group.config.epoch, group.config.id)}});
  }
  if (arrival.data == nullptr && header.payload_bytes > 0 && !from.placing) {
    place(group, peer, header);
    return;
  }
  take_acked(&from, header.acked);
  switch (header.type) {
    case wire::MessageType::kData: on_data(group, peer, arrival); break;
    case wire::MessageType::kAnnounce: on_announce(group, peer, header); break;
    case wire::MessageType::kCredit: on_credit(group, peer, header); break;
    case wire::MessageType::kAck: break;
    case wire::MessageType::kAbort: on_abort(group, peer, arrival); break;
    case wire::MessageType::kGoodbye: note_gone(group, peer); break;
    case wire::MessageType::kMessage:
    case wire::MessageType::kOffer:
    case wire::MessageType::kAccept:
    case wire::MessageType::kPart:
    case wire::MessageType::kRoom: on_message(group, peer, arrival); break;
  }
}

bool drain(Group& group, int peer) {
  Peer& from = group.peers[peer];
  int taken = 0;
  transport::Arrival arrival;
  while (taken < kTakenAtOnce && group.status.ok() && from.link->receive(&arrival)) {
    ++taken;
    take(group, peer, arrival);
  }
  return taken > 0;
}

void adopt_early(Group& group, Operation& operation) {
  for (size_t peer = 0; peer < group.peers.size(); ++peer) {
    auto& early = group.peers[peer].heard_early;
    const auto found = std::find_if(early.begin(), early.end(), [&](const wire::Header& heard) {
      return heard.sequence == operation.sequence;
    });
    if (found == early.end()) continue;
    const CallRecord other = described(*found);
    early.erase(found);
    const int rank = static_cast<int>(peer);
    if (!is_alike(group, rank, call_of(operation), other)) return;
    hear(operation, rank);
  }
  // In the order of arrival, which is each stream's order.
  for (size_t i = 0; i < group.early.size();) {
    if (group.early[i].header.sequence != operation.sequence) {
      ++i;
      continue;
    }
    // Taken out first: a message that is not the expected one ends the group, and with it the list.
    const EarlyChunk taken = group.early[i];
    group.early.erase(group.early.begin() + static_cast<int64_t>(i));
    --group.peers[taken.peer].early;
    if (!enqueue(group, taken.peer, operation, taken.header, taken.chunk)) return;
  }
}

void use_up(Group& group, Operation& operation, int stream) {
  StreamState& state = operation.streams[stream];
  const plan::Stream& of_plan = operation.request.plan->streams[stream];
  Chunk& chunk = state.arrived.front();
  if (!chunk.staged && chunk.data != nullptr) --operation.held_slots;
  release(group, of_plan.peer, &chunk);
  state.arrived.pop();
  ++state.unreturned;
  // Credits go back in batches, and only as many as the peer has chunks for.
  const int batch = std::max(1, group.config.window / 2);
  if (state.to_grant > 0 && (state.unreturned >= batch)) {
    wire::Header credit = control(group, wire::MessageType::kCredit, operation.sequence);
    credit.lane = static_cast<uint8_t>(of_plan.lane);
    credit.chunk = static_cast<uint32_t>(state.unreturned);
    group.peers[of_plan.peer].control.push(credit);
    state.to_grant -= state.unreturned;
    state.unreturned = 0;
  }
}

void stage_held(Group& group, Operation& operation) {
  for (size_t s = 0; s < operation.streams.size(); ++s) {
    Ring<Chunk>& arrived = operation.streams[s].arrived;
    for (size_t i = 0; i < arrived.size(); ++i) {
      if (!stage(group, operation.request.plan->streams[s].peer, &arrived[i])) return;
    }
  }
  operation.held_slots = operation.held_passes = 0;
}

}  // namespace ciuic::engine
