// SPDX-License-Identifier: Apache-2.0
// group.h: the engine's state of one group and of its operations under way. Inner to the engine.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "engine/chunk.h"
#include "engine/engine.h"
#include "engine/point_to_point.h"
#include "engine/program.h"
#include "engine/ring.h"
#include "engine/work_state.h"

namespace ciuic::engine {

// One operation's side of a plan::Stream.
struct StreamState {
  int send_position = 0;      // messages sent, whole
  int receive_position = 0;   // messages used up, whole
  int arrive_position = 0;    // messages arrived, whole
  uint32_t arrive_chunk = 0;  // chunks arrived of the one after
  bool heard = false;         // the peer has started this operation
  int window = 0;             // chunks that may be sent now
  int64_t to_grant = 0;       // chunks that the peer will still need credits for
  int unreturned = 0;         // chunks used up since the last credit
  Ring<Chunk> arrived;
};

// Bytes of a block range, bound to memory.
struct Bytes {
  std::byte* data = nullptr;
  size_t size = 0;
};

struct StepState {
  uint32_t chunks = 0;
  uint32_t started = 0;  // kSend: chunks given to the links
  uint32_t done = 0;
  Bytes source;  // the step's ranges, once bound
  Bytes target;
};

struct Operation {
  Request request;
  std::shared_ptr<Program> program;
  WorkState* work = nullptr;
  uint32_t sequence = 0;
  TimeNs called_at = 0;
  TimeNs shows_at = kNever;  // to the peers that have not been heard from
  size_t chunk_bytes = 0;
  std::byte* scratch = nullptr;  // the program's scratch blocks
  size_t scratch_bytes = 0;
  int unfinished = 0;   // steps
  int first_open = 0;   // no step before this one is unfinished
  int held_slots = 0;   // arrived chunks that still occupy a peer's slot
  int held_passes = 0;  // since when
  std::vector<StepState> steps;
  std::vector<uint32_t> sent;  // by place: chunks whose payload the link no longer needs
  std::vector<StreamState> streams;
};

// A message of an operation that this rank has not started.
struct EarlyChunk {
  int peer = 0;
  wire::Header header;
  Chunk chunk;
};

// A send whose payload the link still needs.
struct InFlight {
  uint64_t ticket = 0;    // the link's sent() must reach it
  uint32_t sequence = 0;  // of the operation; of a message between two ranks its number
  int step = 0;           // -1: it is such a message
  int place = 0;
};

// What the engine knows of one peer in a group.
struct Peer {
  std::unique_ptr<transport::Link> link;
  bool gone = false;   // it has said goodbye, or the link is lost
  uint64_t sends = 0;  // calls of link->send()
  Ring<InFlight> in_flight;
  Ring<wire::Header> control;  // to be sent before anything else

  // Eager operations sent there that it is not known to have ended, oldest first.
  Ring<uint32_t> eager;
  uint32_t acked = 0;  // it has ended all operations before this one

  int unacked = 0;            // operations with messages from it, ended since it was told
  uint32_t unacked_last = 0;  // the last of them
  int early = 0;              // its messages among Group::early
  // Announcements of operations that it has started, and this rank has not.
  std::vector<wire::Header> heard_early;

  // The payload that the link is reading now.
  bool placing = false;
  bool placing_direct = false;
  Chunk placed;
};

class Group {
 public:
  GroupConfig config;
  int* causes = nullptr;  // of all groups, that wait for take_cause()
  memory::StagingPool* staging = nullptr;
  Status status;           // why it is halted or has ended
  bool is_halted = false;  // what ends the group is being decided
  Cause cause;
  bool cause_waits = false;
  bool is_told = false;        // a Work has ended with `status`
  std::vector<Peer> peers;     // by rank
  bool any_gone = false;       // of them
  bool checks_gone = false;    // check_gone() has to look
  TimeNs gone_since = kNever;  // ... and waits for earlier operations

  // The last calls, by sequence modulo their number.
  static constexpr uint32_t kCallRecords = 64;
  std::array<CallRecord, kCallRecords> calls{};

  uint32_t next_sequence = 0;
  uint32_t lowest = 0;                          // all operations before this one have ended here
  std::array<Operation*, kMaxActive> active{};  // by sequence modulo kMaxActive
  std::deque<Operation*> queued;                // in order, after the active ones
  int unended = 0;  // of both, and sends and receives; some end before the lowest does
  std::vector<EarlyChunk> early;
  PointToPoint messages;
  std::vector<std::unique_ptr<Operation>> spare;

  struct CachedProgram {
    const plan::Plan* plan = nullptr;
    std::shared_ptr<Program> program;
  };
  std::array<CachedProgram, 64> programs{};
  TimeNs next_deadline = kNever;
  uint32_t passes = 0;

  Operation* find(uint32_t sequence) const {
    Operation* operation = active[sequence % kMaxActive];
    return operation != nullptr && operation->sequence == sequence ? operation : nullptr;
  }
};

// Number of the first operation that has not been started.
inline uint32_t first_queued(const Group& group) {
  return group.queued.empty() ? group.next_sequence : group.queued.front()->sequence;
}

// bind.cc: operations come into being.
void bind(Group& group, Request&& request, WorkState* work, TimeNs now);
void start_queued(Group& group, TimeNs now);
CallRecord call_of(const Operation& operation);
CallRecord call_of(const Group& group, uint32_t sequence);  // operation == nullptr: not known
void show_call(Group& group, Operation& operation);  // to peers that have long kept it waiting

// receive.cc: takes what has arrived. Returns whether anything has.
bool drain(Group& group, int peer);
void adopt_early(Group& group, Operation& operation);
void use_up(Group& group, Operation& operation, int stream);  // the oldest arrived chunk
void stage_held(Group& group, Operation& operation);

// run.cc: does steps.
bool may_start(const Operation& operation, int step, uint32_t chunk);  // as far as data goes
void chunk_done(Operation& operation, int step);
bool run(Group& group, Operation& operation);
bool retire_sends(Group& group, int peer);
bool flush_control(Group& group, int peer);
wire::Header control(const Group& group, wire::MessageType type, uint32_t sequence);

// end.cc: operations and groups end.
void finish(Group& group, Operation& operation);
void out_of_memory(Group& group, size_t bytes);
void report(Group& group, Cause cause);  // halts the group, or ends it
void end_group(Group& group, Status status);
bool check_deadlines(Group& group, TimeNs now);  // returns whether anything was sent
void check_links(Group& group);
void note_gone(Group& group, int peer);  // it has said goodbye, or the link is lost
// Ends the group where an operation needs more of a peer that is gone. Earlier operations that can
// end by what has come, do so first: while anything moves, for a moment (kGoneGrace).
void check_gone(Group& group, bool is_idle, TimeNs now);
bool needs(const Group& group, const Operation& operation, int peer);  // more of the peer

}  // namespace ciuic::engine
