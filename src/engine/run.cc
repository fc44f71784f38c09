// SPDX-License-Identifier: Apache-2.0
// run.cc: the chunk loop. Every step whose turn it is does as many chunks as it can.

#include <algorithm>
#include <array>
#include <cstring>

#include "base/assert.h"
#include "engine/group.h"
#include "kernels/reduce.h"

namespace ciuic::engine {

bool may_start(const Operation& operation, int step, uint32_t chunk) {
  for (const plan::Dependency& dependency : operation.request.plan->steps[step].after) {
    const StepState& before = operation.steps[dependency.step];
    if (dependency.whole ? before.done < before.chunks : before.done <= chunk) return false;
  }
  return true;
}

void chunk_done(Operation& operation, int step) {
  StepState& state = operation.steps[step];
  if (++state.done < state.chunks) return;
  --operation.unfinished;
  const plan::Step& of_plan = operation.request.plan->steps[step];
  if (of_plan.kind == plan::StepKind::kSend || of_plan.kind == plan::StepKind::kCopy) return;
  for (const plan::StreamPlace& place : of_plan.places) {
    ++operation.streams[place.stream].receive_position;
  }
}

static Bytes chunk_of(const Operation& operation, const Bytes& bytes, uint32_t chunk) {
  const size_t offset = chunk * operation.chunk_bytes;
  return {bytes.data + offset, std::min(operation.chunk_bytes, bytes.size - offset)};
}

wire::Header control(const Group& group, wire::MessageType type, uint32_t sequence) {
  wire::Header header;
  header.type = type;
  header.epoch = group.config.epoch;
  header.group = group.config.id;
  header.sequence = sequence;
  return header;
}

static void told(Peer* to, uint32_t acked) {
  if (wire::before(to->unacked_last, acked)) to->unacked = 0;
}

bool flush_control(Group& group, int peer) {
  Peer& to = group.peers[peer];
  bool any = false;
  while (!to.control.empty() && to.link->can_send(0)) {
    wire::Header& header = to.control.front();
    header.acked = group.lowest;
    to.link->send(header, nullptr, nullptr);
    ++to.sends;
    told(&to, group.lowest);
    to.control.pop();
    any = true;
  }
  return any;
}

// Whether the flow control lets the next message on a stream go.
static bool may_send(const Group& group, const Operation& operation, const plan::StreamPlace& place,
                     const StepState& step, size_t bytes) {
  const StreamState& stream = operation.streams[place.stream];
  if (stream.heard) return stream.window > 0;
  const int peer = operation.request.plan->streams[place.stream].peer;
  const Peer& to = group.peers[peer];
  return place.position == 0 && operation.program->eager_stream[peer] == place.stream &&
         step.chunks == 1 && bytes <= kEagerBytes && to.eager.size() < kEagerOperations;
}

static bool may_send_to_all(Group& group, const Operation& operation, int step, size_t bytes) {
  const plan::Step& of_plan = operation.request.plan->steps[step];
  for (size_t p = 0; p < of_plan.peers.size(); ++p) {
    const plan::StreamPlace& place = of_plan.places[p];
    if (operation.streams[place.stream].send_position != place.position) return false;
    if (!may_send(group, operation, place, operation.steps[step], bytes)) return false;
    Peer& to = group.peers[of_plan.peers[p]];
    // Control goes first, so that a full link never keeps it back behind data.
    if (!to.control.empty() || !to.link->can_send(bytes)) return false;
  }
  return true;
}

static void send_chunk(Group& group, Operation& operation, int step, const Bytes& bytes) {
  const plan::Step& of_plan = operation.request.plan->steps[step];
  StepState& state = operation.steps[step];
  wire::Header header = control(group, wire::MessageType::kData, operation.sequence);
  header.lane = static_cast<uint8_t>(of_plan.lane);
  header.fingerprint = operation.request.fingerprint;
  header.chunk = state.started;
  header.payload_bytes = static_cast<uint32_t>(bytes.size);
  header.message_bytes = state.source.size;
  header.acked = group.lowest;
  transport::Publication publication;
  bool all_sent = true;
  for (size_t p = 0; p < of_plan.peers.size(); ++p) {
    Peer& to = group.peers[of_plan.peers[p]];
    StreamState& stream = operation.streams[of_plan.places[p].stream];
    if (!stream.heard) to.eager.push(operation.sequence);
    --stream.window;
    header.step = static_cast<uint16_t>(of_plan.places[p].position);
    to.link->send(header, bytes.data, &publication);
    ++to.sends;
    told(&to, group.lowest);
    const int place = operation.program->first_place[step] + static_cast<int>(p);
    if (to.in_flight.empty() && to.link->sent() == to.sends) {
      ++operation.sent[place];
    } else {
      to.in_flight.push({to.sends, operation.sequence, step, place});
      all_sent = false;
    }
  }
  ++state.started;
  if (all_sent && state.done + 1 == state.started) chunk_done(operation, step);
}

static bool run_send(Group& group, Operation& operation, int step) {
  const plan::Step& of_plan = operation.request.plan->steps[step];
  StepState& state = operation.steps[step];
  bool any = false;
  while (state.started < state.chunks && may_start(operation, step, state.started)) {
    const Bytes bytes = chunk_of(operation, state.source, state.started);
    if (!may_send_to_all(group, operation, step, bytes.size)) break;
    send_chunk(group, operation, step, bytes);
    any = true;
    if (state.started < state.chunks) continue;
    for (const plan::StreamPlace& place : of_plan.places) {
      ++operation.streams[place.stream].send_position;
    }
  }
  return any;
}

bool retire_sends(Group& group, int peer) {
  Peer& to = group.peers[peer];
  if (to.in_flight.empty()) return false;
  const uint64_t sent = to.link->sent();
  bool any = false;
  while (!to.in_flight.empty() && to.in_flight.front().ticket <= sent) {
    const InFlight done = to.in_flight.front();
    to.in_flight.pop();
    any = true;
    if (done.step < 0) {
      retire_send(group, peer, done.sequence);
      continue;
    }
    Operation* operation = group.find(done.sequence);
    CIUIC_ASSERT(operation != nullptr);  // it ends only after its sends
    ++operation->sent[done.place];
    const plan::Step& of_plan = operation->request.plan->steps[done.step];
    const auto first = operation->sent.begin() + operation->program->first_place[done.step];
    const uint32_t everywhere =
        *std::min_element(first, first + static_cast<int>(of_plan.peers.size()));
    while (operation->steps[done.step].done < everywhere) chunk_done(*operation, done.step);
  }
  return any;
}

// Whether all peers' next chunks for this step are here.
static bool has_arrived(const Operation& operation, const plan::Step& step) {
  for (const plan::StreamPlace& place : step.places) {
    const StreamState& stream = operation.streams[place.stream];
    if (stream.receive_position != place.position || stream.arrived.empty()) return false;
  }
  return true;
}

static void reduce_chunk(Operation& operation, const plan::Step& step, const Bytes& own,
                         const Bytes& target) {
  // Most folds are small; only a group of more ranks allocates.
  std::array<kernels::Operand, 16> few;
  std::vector<kernels::Operand> many;
  const size_t count = step.peers.size() + 1;
  if (count > few.size()) many.resize(count);
  kernels::Operand* operands = count > few.size() ? many.data() : few.data();
  size_t at = 0;
  for (size_t p = 0; p <= step.peers.size(); ++p) {
    if (static_cast<int>(p) == step.own_place) {
      operands[at++] = {own.data, step.source.space == plan::Space::kInput};
    }
    if (p == step.peers.size()) break;
    operands[at++] = {operation.streams[step.places[p].stream].arrived.front().data,
                      step.received_raw};
  }
  const Request& request = operation.request;
  const int ranks = static_cast<int>(operation.program->first_stream.size());
  kernels::reduce({request.dtype, request.op, ranks}, {operands, at}, step.final, target.data,
                  static_cast<int64_t>(target.size / size_of(request.dtype)));
}

// Whether what was read of the peers' chunks is what they sent; else the group is over.
static bool are_intact(Group& group, const Operation& operation, const plan::Step& step) {
  for (size_t p = 0; p < step.peers.size(); ++p) {
    const Chunk& chunk = operation.streams[step.places[p].stream].arrived.front();
    if (!is_intact(group, step.peers[p], chunk)) return false;
  }
  return true;
}

static bool run_receive(Group& group, Operation& operation, int index) {
  const plan::Step& step = operation.request.plan->steps[index];
  StepState& state = operation.steps[index];
  bool any = false;
  while (state.done < state.chunks && has_arrived(operation, step) &&
         may_start(operation, index, state.done)) {
    const Bytes target = chunk_of(operation, state.target, state.done);
    if (target.size > 0) {
      if (step.kind == plan::StepKind::kReduce) {
        reduce_chunk(operation, step, chunk_of(operation, state.source, state.done), target);
      } else {
        const StreamState& stream = operation.streams[step.places[0].stream];
        std::memcpy(target.data, stream.arrived.front().data, target.size);
      }
    }
    if (!are_intact(group, operation, step)) return true;
    for (const plan::StreamPlace& place : step.places) use_up(group, operation, place.stream);
    chunk_done(operation, index);
    any = true;
  }
  return any;
}

static bool run_copy(Operation& operation, int index) {
  StepState& state = operation.steps[index];
  bool any = false;
  while (state.done < state.chunks && may_start(operation, index, state.done)) {
    const Bytes source = chunk_of(operation, state.source, state.done);
    const Bytes target = chunk_of(operation, state.target, state.done);
    if (target.size > 0 && source.data != target.data) {
      std::memcpy(target.data, source.data, target.size);
    }
    chunk_done(operation, index);
    any = true;
  }
  return any;
}

bool run(Group& group, Operation& operation) {
  const auto& steps = operation.request.plan->steps;
  bool any = false;
  for (int i = operation.first_open; i < static_cast<int>(steps.size()); ++i) {
    if (!group.status.ok()) return true;  // the operation may have ended
    const StepState& state = operation.steps[i];
    if (state.done == state.chunks) {
      if (i == operation.first_open) ++operation.first_open;
      continue;
    }
    switch (steps[i].kind) {
      case plan::StepKind::kSend: any |= run_send(group, operation, i); break;
      case plan::StepKind::kReceive:
      case plan::StepKind::kReduce: any |= run_receive(group, operation, i); break;
      case plan::StepKind::kCopy: any |= run_copy(operation, i); break;
    }
  }
  return any;
}

}  // namespace ciuic::engine
