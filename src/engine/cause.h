// SPDX-License-Identifier: Apache-2.0
// cause.h: why a group is to end, as one rank sees it, and what it can say of its calls.
#pragma once

#include <cstdint>
#include <string>

#include "base/clock.h"
#include "ciuic/dtype.h"
#include "ciuic/status.h"

namespace ciuic::engine {

// What a rank has found. The group's ranks may find different things at once; which of them ends
// the group is decided in one place (communicator/control_hub.h).
struct Cause {
  Status status;               // what to say where nobody knows better
  int about = -1;              // the rank that it speaks of: lost, or called otherwise; -1: none
  bool has_operation = false;  // it concerns one operation,
  uint32_t sequence = 0;       // this one
  std::string operation = "";  // its name
  bool is_late = false;        // a deadline has passed
};

// One call of an operation, as the ranks' calls are compared.
struct CallRecord {
  const char* operation = nullptr;  // null: not known (never called, or long ago)
  uint32_t sequence = 0;
  uint32_t fingerprint = 0;
  DataType dtype = DataType::kUInt8;
  ReduceOp op = ReduceOp::kSum;
  bool reduces = false;
  int root = -1;  // -1: it has none
  int64_t count = 0;

  // "all_reduce(float32, 1024 elements, sum)", "broadcast(float32, 10 elements, root 1)".
  std::string text() const;
};

// How far a group has come on this rank.
struct GroupProgress {
  uint32_t lowest = 0;  // all operations before this one have ended
  uint32_t next = 0;    // number of the next call
  bool has_ended = false;
  TimeNs waits_since = kNever;  // the call of the oldest operation that has not ended; kNever: none
  TimeNs message_since = kNever;  // the same of sends and receives
};

}  // namespace ciuic::engine
