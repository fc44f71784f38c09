// SPDX-License-Identifier: Apache-2.0
// engine.h: runs plans over links. One engine carries all communicators of a process.
//
// step(now) does what can be done at this moment and returns; it never blocks, allocates nothing
// once warm, and looks at no clock. One thread at a time: the driver above it (driver.h) owns the
// lock, and decides who steps and when to sleep. Tests and the simulator hold one engine a rank.
//
// Flow control, alike for every transport:
//   - Operations of a group are numbered at the call and matched by number; up to kMaxActive of
//     them run at once, later ones wait their turn.
//   - The first message of an operation to a peer, if it is one chunk of at most kEagerBytes, may
//     go before the peer is known to have started the operation, while fewer than
//     kEagerOperations such messages are in operations that the peer is not known to have ended.
//     (`acked` in every header tells; who only receives says so after half as many.)
//   - Everything else goes after the peer was heard from in this operation: by a message of it, or
//     by the announcement that a rank sends at the start to peers with more to send. From then on
//     `window` chunks a (operation, link, lane) may be under way, which the receiver renews.
//   - An announcement has the call's fingerprint, which the hearer compares with its own. Who has
//     not heard from a peer for long announces itself there, too: the peer may wait likewise, in
//     another call.
// So what arrives early is bounded, goes to staging, and a reader never stops reading.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "ciuic/dtype.h"
#include "ciuic/status.h"
#include "engine/cause.h"
#include "memory/staging_pool.h"
#include "plan/plan.h"
#include "trace/recorder.h"
#include "transport/link.h"

namespace ciuic::engine {

class WorkDriver;
class WorkState;
class Group;

inline constexpr size_t kEagerBytes = 16 * 1024;
inline constexpr uint32_t kEagerOperations = 16;
inline constexpr int kMaxActive = 8;

// An acknowledgement, and the operations that may end after the one that holds it up, must leave
// room for one more eager message; else the oldest operation could wait for ever
// (plan/sequence_model.h).
static_assert(kEagerOperations / 2 >= kMaxActive - 1);

struct GroupConfig {
  uint32_t id = 0;
  uint32_t epoch = 0;
  int rank = 0;
  std::vector<std::unique_ptr<transport::Link>> links;  // by rank; null for this one
  int window = 4;                                       // chunks; alike on all ranks
  uint32_t first_sequence = 0;  // number of the first operation; alike on all ranks

  // A cause to end the group only halts it: take_cause() gives it out, and end_group() ends the
  // group. Else it ends at once.
  bool is_arbitrated = false;

  trace::GroupRecorder trace;  // what the group does is written there
};

// Keeps an operation, which is numbered at its call, from starting before its memory is ready.
// Later operations of the group wait behind it. Who opens it wakes the driver.
class Gate {
 public:
  void open() { is_open_.store(true, std::memory_order_release); }
  bool is_open() const { return is_open_.load(std::memory_order_acquire); }

 private:
  std::atomic<bool> is_open_{false};
};

enum class RequestKind : uint8_t { kCollective, kSend, kReceive };

// One operation, checked, chosen and bound to memory. A send or receive has no plan, and is not
// numbered (point_to_point.h).
struct Request {
  const char* operation = "";  // "all_reduce"; static
  RequestKind kind = RequestKind::kCollective;
  int peer = -1;     // kSend, kReceive: the other rank, may be this one; kReceive: -1 takes any
  int32_t tag = -1;  // the same: 0 or more; kReceive: -1 takes any
  std::shared_ptr<const plan::Plan> plan;
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  int64_t count = 0;                           // elements, the unit of the plan's partitions
  std::shared_ptr<const plan::Counts> counts;  // uneven forms; null: every block has `count`
  int64_t whole_count = 0;                     // of the call that this is a part of; 0: `count`
  int64_t stride = 0;  // of a part: elements from block to block of kEach; 0: one after another
  DataType dtype = DataType::kUInt8;
  ReduceOp op = ReduceOp::kSum;
  bool reduces = false;            // `op` means something
  bool ends_elsewhere = false;     // whoever carries it out records its end
  int root = -1;                   // -1: it has none
  size_t chunk_bytes = 64 * 1024;  // alike on all ranks
  uint32_t fingerprint = 0;
  std::shared_ptr<const Gate> gate;  // null: it may start
  int64_t timeout_ms = 0;            // for messages
  TimeNs deadline = kNever;
};

class Engine {
 public:
  explicit Engine(memory::StagingPool* staging);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // The group lives until remove_group(), which ends what is in flight with kAborted and closes the
  // links. It returns the error with which the group had ended where no Work has told it.
  Group* add_group(GroupConfig config);
  Status remove_group(Group* group);

  // A cause from outside, such as the user's abort().
  void report(Group* group, const Cause& cause);

  // Once for each group that was halted. False: no cause, or given out before.
  bool take_cause(Group* group, Cause* cause);
  bool has_causes() const;  // that nobody has taken; cheap

  // Ends the group: all of its operations end with `status`, and later ones at once.
  void end_group(Group* group, const Status& status);

  // A peer is gone for good, by what others say; `why` as Link::peer_gone() has it.
  void mark_gone(Group* group, int peer, const Status& why);

  // Ok, or why the group is halted or has ended.
  const Status& group_status(const Group* group) const;

  // Some sixty calls back. operation == nullptr: not called, or longer ago.
  CallRecord call_record(const Group* group, uint32_t sequence) const;
  GroupProgress progress(const Group* group) const;

  // Whether the operation is under way and needs more of the peer.
  bool needs(const Group* group, uint32_t sequence, int peer) const;

  // Numbers the operation and starts it, or queues it. Never fails: an error is on the Work. The
  // caller gets one reference. `driver` is who a waiting caller turns to; the simulator has none.
  WorkState* submit(Group* group, Request request, TimeNs now,
                    std::shared_ptr<WorkDriver> driver = nullptr);

  // The same for one part of a Work, which has been made for as many.
  void submit_part(Group* group, Request&& request, TimeNs now, WorkState* work);

  // Returns whether anything moved.
  bool step(TimeNs now);

  // To be called before a thread sleeps, and before one more step: gives back the peers' slots that
  // are still held, and lets that step look at the links, which may have failed unseen.
  void before_sleep();

  int active() const;            // operations started or queued and not ended, in all groups
  TimeNs next_deadline() const;  // kNever where there is none

  size_t link_bytes(const Group* group) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ciuic::engine
