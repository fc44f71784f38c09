// SPDX-License-Identifier: Apache-2.0
// fault.h: what goes wrong in a simulated run: whose, when, and how.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/clock.h"

namespace ciuic::sim {

enum class FaultKind : uint8_t {
  kNone = 0,
  kKilled,       // the process is gone at once; its kernel ends its connections
  kExited,       // the same, once all of its operations have ended, without a close
  kStopped,      // the process steps no more; its connections stay
  kPaused,       // the same, for a while
  kNeverCalls,   // makes none of its calls from `call` on
  kCallsLate,    // makes them from `until` on
  kCutData,      // the connections between two processes end, or those of one with all others:
  kCutControl,   //   those of the data path, of the control plane,
  kCutBoth,      //   both
  kDroppedData,  // messages between them vanish, and nobody is told
  kDroppedControl,
  kDroppedBoth,
  kCallsOtherwise,  // makes another call than the others, `lie` says which
  kBadMessage,      // one message's header says what no call would, `lie` says what
  kBadControl,      // garbage on the victim's line of the control plane
  kAborts,          // abort()
  kClosesEarly,     // close(), whatever is under way
  kShortTimeout,    // too little time for operations that nothing else is wrong with
};
inline constexpr int kFaultKinds = 19;
const char* name_of(FaultKind kind);

// kCallsOtherwise.
enum class OtherCall : uint8_t { kOperation, kDtype, kCount, kOp, kRoot, kOrder };
inline constexpr int kOtherCalls = 6;
const char* name_of(OtherCall lie);

// kBadMessage.
enum class BadMessage : uint8_t {
  kFingerprint,
  kStep,
  kChunk,
  kMessageBytes,
  kPayloadBytes,
  kSequenceAhead,
  kSequenceBehind,
  kCredits,
  kLane,
  kGroup,
  kEpoch,
};
inline constexpr int kBadMessages = 11;
const char* name_of(BadMessage lie);

// kBadControl.
enum class BadControl : uint8_t { kGarbage, kTruncated, kNonsense };
inline constexpr int kBadControls = 3;
const char* name_of(BadControl lie);

struct Fault {
  FaultKind kind = FaultKind::kNone;
  int victim = 0;  // process
  int other = -1;  // the connections with this process are concerned; -1: with all
  int group = -1;  // concerned; -1: all that the victim is in
  TimeNs at = 0;
  TimeNs until = kNever;
  size_t call = 0;     // number of the first call concerned; kBadMessage: messages spared
  int lie = 0;         // one of the above
  bool loses = false;  // what is under way at the end is lost

  bool cuts() const { return FaultKind::kCutData <= kind && kind <= FaultKind::kCutBoth; }
  bool drops() const { return FaultKind::kDroppedData <= kind && kind <= FaultKind::kDroppedBoth; }
  bool hits_data() const;     // connections of the data path
  bool hits_control() const;  // of the control plane
  bool is_death() const { return kind == FaultKind::kKilled || kind == FaultKind::kExited; }

  std::string text() const;
};

}  // namespace ciuic::sim
