// SPDX-License-Identifier: Apache-2.0
// sequence_state.h: what sequence_model.cc keeps for each operation, rank, link and slot.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <tuple>
#include <vector>

#include "plan/layout.h"
#include "plan/matching.h"
#include "plan/plan.h"

namespace ciuic::plan {

// Which chunk of which send; what a slot holds, and what its reader must find there.
struct Tag {
  int operation = -1;
  int rank = -1;
  int step = -1;
  int chunk = -1;
  bool operator==(const Tag&) const = default;
};

struct Slot {
  Tag content;
  int readers = 0;
};

struct Packet {
  enum class Type : uint8_t { kData, kCredit, kAnnounce, kAck };
  Type type = Type::kData;
  int operation = 0;
  int acked = 0;     // all operations before this one have ended at the sender
  int message = -1;  // kData, kCredit: index into the operation's messages
  int chunk = 0;
  Tag tag = {};
  int slot = -1;  // of the sender, that holds the payload; -1: copied, or not in one
  std::vector<int> written = {};  // versions of the sender's blocks when this was sent
};

// One operation on one rank.
struct Activity {
  bool started = false;
  bool ended = false;
  int buffer = -1;                        // which of the rank's buffers it uses
  std::vector<int> done;                  // chunks of each step
  std::vector<int> open;                  // steps that are not done
  std::vector<bool> heard;                // from each rank, in this operation
  std::vector<int> under_way;             // chunks of each stream without credit yet
  std::vector<std::deque<Packet>> inbox;  // arrivals of each stream
};

// One operation on all ranks.
struct OperationState {
  const std::vector<Plan>* plans = nullptr;
  std::vector<Message> messages;
  std::vector<int> before;  // the message before it in its stream
  std::vector<int> sent;    // chunks of each message
  std::vector<int> taken;   // of those, how many no longer need the sender's buffer
  std::vector<int> arrived;
  std::vector<std::vector<std::vector<int>>> outgoing;  // messages of [rank][step]
  std::vector<std::vector<std::vector<int>>> incoming;
  std::vector<std::vector<int>> messages_from;  // how many to [rank] from [rank]
  std::vector<Activity> activities;             // by rank
};

struct RankState {
  int acked = 0;                        // all operations before this one have ended here
  std::vector<std::vector<int>> eager;  // to each peer: operations that it may not have ended
  std::vector<int> unacked;             // from each peer: operations that it was not told of
  std::vector<int> last_unacked;        // the last of them
  std::vector<Slot> slots;
  // How often a chunk of a block was written: (buffer, space, block, chunk).
  std::map<std::tuple<int, Space, int, int>, int> versions;
};

// `plans` is finished, and matched in the result. kInvalidArgument as match().
Result<OperationState> operation_state(const std::vector<Plan>& plans);

}  // namespace ciuic::plan
