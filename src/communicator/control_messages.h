// SPDX-License-Identifier: Apache-2.0
// control_messages.h: what the ranks of a group and its hub, rank 0, say to each other, one frame
// each. Every message has the same fields; those that a kind does not name are zero.
//
//   a rank to the hub
//     kAlive     it is there; every heartbeat
//     kCause     status, about, sequence, operation: it has halted
//     kLate      sequence: it has waited long for this operation
//     kCalled    sequence, the call: answers kAsk; no operation: not called, or long ago; about: a
//                rank that is gone, and that the operation still needs here
//     kLeave     it closes in good order
//     kGivenUp   status: it has not heard from the hub, has ended, and goes on without rank 0
//   the hub to a rank
//     kAlive     it is there; every heartbeat
//     kAsk       sequence: what have you called?
//     kGone      about, status: that rank is gone; `flag`: in good order
//     kMissing   sequence, text: whom an operation waits for
//     kDecision  status: the group ends; about: a rank that is given up for it
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "ciuic/status.h"

namespace ciuic::control {

enum class MessageKind : uint8_t {
  kAlive = 1,
  kCause = 2,
  kLate = 3,
  kCalled = 4,
  kLeave = 5,
  kAsk = 6,
  kGone = 7,
  kMissing = 8,
  kDecision = 9,
  kGivenUp = 10,
};

struct Message {
  MessageKind kind = MessageKind::kAlive;
  Status status = {};
  int about = -1;
  bool flag = false;           // kCause: it has an operation; kGone: in good order
  bool is_late = false;        // kCause: a deadline has passed
  uint32_t sequence = 0;       // of the operation
  uint32_t next = 0;           // kAlive, kCalled: the number of the rank's next call
  uint32_t lowest = 0;         // kCalled: of the operation that it waits for; `next`: for none
  uint32_t fingerprint = 0;    // kCalled
  std::string operation = {};  // kCause, kCalled: its name
  std::string text = {};       // kCalled: the call in words; kMissing
};

inline constexpr size_t kMaxTextBytes = 2048;  // of each text; longer ones are cut
inline constexpr size_t kMaxMessageBytes = 4 * kMaxTextBytes;

std::string encode(const Message& message);

// kInvalidArgument: no message.
Result<Message> decode_message(std::string_view bytes);

}  // namespace ciuic::control
