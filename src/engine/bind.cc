// SPDX-License-Identifier: Apache-2.0
// bind.cc: an operation comes into being: its plan's blocks get bytes, its turn comes.

#include <algorithm>
#include <cstring>
#include <optional>

#include "base/assert.h"
#include "engine/announcement.h"
#include "engine/group.h"
#include "plan/registry.h"

namespace ciuic::engine {

static const std::shared_ptr<Program>& program_for(Group& group,
                                                   const std::shared_ptr<const plan::Plan>& plan) {
  const size_t at = (reinterpret_cast<uintptr_t>(plan.get()) >> 6) % group.programs.size();
  Group::CachedProgram& cached = group.programs[at];
  // The cached program holds the plan, so its address cannot have become another plan's.
  if (cached.plan != plan.get()) {
    Program program = compile(plan, static_cast<int>(group.peers.size()));
    program.traced_algorithm = group.config.trace.name_index(plan->algorithm);
    cached.program = std::make_shared<Program>(std::move(program));
    cached.plan = plan.get();
  }
  return cached.program;
}

static Placement::Range range_of(const Operation& operation, const plan::BlockRange& range) {
  if (range.count == 0) return {};
  const Request& request = operation.request;
  const auto element = static_cast<int64_t>(size_of(request.dtype));
  const auto elements = [&request](const plan::BlockRange& of) {
    return request.plan->elements(of, request.count, request.counts.get());
  };
  plan::Elements found = elements(range);
  if (found.size == 0) return {};
  if (range.space == plan::Space::kScratch) {
    found.begin -= elements(operation.program->scratch).begin;
  } else if (request.stride > 0 && request.plan->partitions[static_cast<int>(range.space)].unit ==
                                       plan::Partition::Unit::kEach) {
    found.begin = range.first * request.stride;
  }
  return {range.space, found.begin * element, static_cast<size_t>(found.size * element)};
}

static uint32_t chunks_of(const Operation& operation, size_t bytes) {
  if (bytes == 0) return 1;  // a message without bytes is a message
  return static_cast<uint32_t>((bytes + operation.chunk_bytes - 1) / operation.chunk_bytes);
}

static void place_step(const Operation& operation, const plan::Step& step, Placement* placement) {
  const bool sends = step.kind == plan::StepKind::kSend;
  Placement::Step& placed = placement->steps.emplace_back();
  if (step.kind != plan::StepKind::kReceive) placed.source = range_of(operation, step.source);
  if (!sends) placed.target = range_of(operation, step.target);
  placed.chunks = chunks_of(operation, std::max(placed.source.size, placed.target.size));
  if (sends || step.kind == plan::StepKind::kCopy) return;
  for (const plan::StreamPlace& place : step.places) {
    placement->arriving[place.stream] += placed.chunks;
  }
}

// Looks into the partitions cost divisions, so calls that repeat do without.
static const Placement& placement_for(const Operation& operation) {
  Placement& placement = operation.program->placement;
  const Request& request = operation.request;
  const size_t element = size_of(request.dtype);
  if (request.counts == nullptr && placement.count == request.count &&
      placement.stride == request.stride && placement.element == element &&
      placement.chunk_bytes == operation.chunk_bytes) {
    return placement;
  }
  placement.count = request.counts == nullptr ? request.count : -1;
  placement.stride = request.stride;
  placement.element = element;
  placement.chunk_bytes = operation.chunk_bytes;
  placement.scratch_bytes = range_of(operation, operation.program->scratch).size;
  placement.steps.clear();
  placement.arriving.assign(request.plan->streams.size(), 0);
  for (const plan::Step& step : request.plan->steps) place_step(operation, step, &placement);
  return placement;
}

static Bytes bytes_of(const Operation& operation, const Placement::Range& range) {
  if (range.size == 0) return {};
  std::byte* base = operation.scratch;
  if (range.space == plan::Space::kOutput) base = operation.request.output;
  // Only ever read: no plan writes to the input, which the prover holds.
  if (range.space == plan::Space::kInput) base = const_cast<std::byte*>(operation.request.input);
  return {base + range.begin, range.size};
}

static void place_blocks(const Group& group, const Placement& placement, Operation& operation) {
  for (size_t i = 0; i < placement.steps.size(); ++i) {
    const Placement::Step& placed = placement.steps[i];
    operation.steps[i] = {.chunks = placed.chunks,
                          .source = bytes_of(operation, placed.source),
                          .target = bytes_of(operation, placed.target)};
  }
  for (size_t s = 0; s < operation.streams.size(); ++s) {
    StreamState& stream = operation.streams[s];
    stream.window = group.config.window;
    stream.to_grant = std::max<int64_t>(0, placement.arriving[s] - group.config.window);
  }
}

// An operation shows its call to silent peers after so long, or an eighth of the time it has.
static constexpr TimeNs kShowAfter = 1'000'000'000;

static TimeNs shows_at(const Operation& operation, TimeNs now) {
  const TimeNs left = std::max<TimeNs>(0, operation.request.deadline - now);
  return now + std::min(kShowAfter, left / 8);
}

static wire::Header announcement(const Group& group, const Operation& operation) {
  wire::Header header = control(group, wire::MessageType::kAnnounce, operation.sequence);
  describe(call_of(operation), &header);
  return header;
}

// A peer that is silent for long may have made another call, in which it waits likewise: one of the
// two would send after an announcement that the other never makes. So each shows the other its own.
void show_call(Group& group, Operation& operation) {
  operation.shows_at = kNever;
  for (size_t rank = 0; rank < group.peers.size(); ++rank) {
    Peer& peer = group.peers[rank];
    const int stream = operation.program->first_stream[rank];
    if (stream < 0 || operation.streams[stream].heard || peer.gone) continue;
    const int index = static_cast<int>(rank);
    if (!needs(group, operation, index)) continue;
    peer.control.push(announcement(group, operation));
    flush_control(group, index);
  }
}

// A rank announces itself to whoever has more for it than one eager message.
static void announce(Group& group, const Operation& operation) {
  for (size_t peer = 0; peer < group.peers.size(); ++peer) {
    int messages = 0;
    bool large = false;
    for (int s = operation.program->first_stream[peer]; s >= 0;
         s = operation.program->next_stream[s]) {
      const auto& receives = operation.program->receives[s];
      messages += static_cast<int>(receives.size());
      for (size_t m = 0; m < receives.size() && !large; ++m) {
        const StepState& state = operation.steps[receives[m].step];
        large = state.chunks > 1 || state.target.size > kEagerBytes;
      }
    }
    if (messages > 1 || large) {
      group.peers[peer].control.push(announcement(group, operation));
    }
  }
}

static void start(Group& group, Operation& operation, TimeNs now) {
  group.config.trace.started(operation.sequence);
  const plan::Plan& plan = *operation.request.plan;
  group.active[operation.sequence % kMaxActive] = &operation;
  operation.unfinished = static_cast<int>(plan.steps.size());
  operation.first_open = 0;
  operation.shows_at = shows_at(operation, now);
  group.next_deadline = std::min(group.next_deadline, operation.shows_at);
  operation.held_slots = operation.held_passes = 0;
  operation.steps.resize(plan.steps.size());
  operation.sent.assign(operation.program->places, 0);
  operation.streams.resize(plan.streams.size());
  for (StreamState& stream : operation.streams) {
    Ring<Chunk> arrived = std::move(stream.arrived);
    arrived.clear();
    stream = StreamState();
    stream.arrived = std::move(arrived);
  }
  operation.scratch = nullptr;
  const Placement& placement = placement_for(operation);
  operation.scratch_bytes = placement.scratch_bytes;
  if (operation.scratch_bytes > 0) {
    operation.scratch = group.staging->take(operation.scratch_bytes);
    if (operation.scratch == nullptr) return out_of_memory(group, operation.scratch_bytes);
  }
  place_blocks(group, placement, operation);
  announce(group, operation);
  adopt_early(group, operation);
  group.checks_gone = group.any_gone;
  if (group.status.ok() && operation.unfinished == 0) finish(group, operation);
}

void start_queued(Group& group, TimeNs now) {
  while (group.status.ok() && !group.queued.empty() &&
         group.queued.front()->sequence - group.lowest < kMaxActive) {
    Operation* operation = group.queued.front();
    if (operation->request.gate != nullptr && !operation->request.gate->is_open()) break;
    group.queued.pop_front();
    start(group, *operation, now);
  }
}

CallRecord call_of(const Operation& operation) {
  const Request& request = operation.request;
  return {.operation = request.operation,
          .sequence = operation.sequence,
          .fingerprint = request.fingerprint,
          .dtype = request.dtype,
          .op = request.op,
          .reduces = request.reduces,
          .root = request.root,
          .count = request.whole_count};
}

CallRecord call_of(const Group& group, uint32_t sequence) {
  if (const Operation* operation = group.find(sequence)) return call_of(*operation);
  const CallRecord& record = group.calls[sequence % Group::kCallRecords];
  if (record.operation == nullptr || record.sequence != sequence) return {};
  CallRecord call = record;
  const std::optional<plan::Operation> operation = operation_called(call.operation);
  call.reduces = operation && plan::reduces(*operation);
  return call;
}

// Field by field, and without what follows from the name: a call that goes well pays for it, too.
static void record_call(Group& group, const Operation& operation) {
  const Request& request = operation.request;
  CallRecord& record = group.calls[operation.sequence % Group::kCallRecords];
  record.operation = request.operation;
  record.sequence = operation.sequence;
  record.fingerprint = request.fingerprint;
  record.dtype = request.dtype;
  record.op = request.op;
  record.root = request.root;
  record.count = request.whole_count;
}

static void trace_call(Group& group, const Operation& operation) {
  const Request& request = operation.request;
  group.config.trace.called({.operation = request.operation,
                             .algorithm = operation.program->traced_algorithm,
                             .starts_at_once = !group.is_halted && group.queued.empty() &&
                                               operation.sequence - group.lowest < kMaxActive,
                             .reduces = request.reduces,
                             .dtype = request.dtype,
                             .op = request.op,
                             .sequence = operation.sequence,
                             .fingerprint = request.fingerprint,
                             .root = request.root,
                             .count = request.whole_count,
                             .bytes = static_cast<uint64_t>(request.count) * size_of(request.dtype),
                             .called_at = operation.called_at});
}

void bind(Group& group, Request&& request, WorkState* work, TimeNs now) {
  if (group.spare.empty()) group.spare.push_back(std::make_unique<Operation>());
  Operation* operation = group.spare.back().release();
  group.spare.pop_back();
  operation->program = program_for(group, request.plan);
  operation->request = std::move(request);
  if (operation->request.whole_count == 0)
    operation->request.whole_count = operation->request.count;
  work->retain();
  operation->work = work;
  operation->sequence = group.next_sequence++;
  operation->called_at = now;
  record_call(group, *operation);
  trace_call(group, *operation);
  // Whole elements in a chunk, and at least one.
  const size_t element = size_of(operation->request.dtype);
  operation->chunk_bytes = std::max(element, operation->request.chunk_bytes / element * element);
  group.next_deadline = std::min(group.next_deadline, operation->request.deadline);
  group.queued.push_back(operation);
  ++group.unended;
}

}  // namespace ciuic::engine
