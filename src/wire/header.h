// SPDX-License-Identifier: Apache-2.0
// header.h: the header before every message between two processes, wire version 1.
//
// Everything is little-endian and at a fixed place. The same fields stand in a shared-memory line,
// which leaves out what the segment already says (epoch, group).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "ciuic/status.h"

namespace ciuic::wire {

inline constexpr uint8_t kVersion = 1;

enum class MessageType : uint8_t {
  kData = 1,      // one chunk of one step's message; payload follows
  kAnnounce = 2,  // the sender has started operation `sequence`: its large messages may come;
                  // lane, step, chunk and message_bytes describe its call
  kCredit = 3,    // `chunk` further chunks of (sequence, lane) may come
  kAck = 4,       // nothing but `acked`
  kAbort = 5,     // the group has ended at the sender; payload: the message text
  kGoodbye = 6,   // the sender closes in good order

  // Between two ranks alone (engine/point_to_point.h). `sequence` is the number of the message from
  // this sender to this receiver, `fingerprint` its tag, `step` its dtype.
  kMessage = 7,  // a whole small message; payload follows
  kOffer = 8,    // a message of message_bytes: may it come?
  kAccept = 9,   // it may
  kPart = 10,    // one chunk of an accepted message; payload follows
  kRoom = 11,    // `chunk` further kMessages may come
};
inline constexpr MessageType kLastMessageType = MessageType::kRoom;

struct Header {
  MessageType type = MessageType::kData;
  uint8_t lane = 0;
  uint16_t step = 0;  // how many messages of this (operation, link, lane) came before
  uint32_t epoch = 0;
  uint32_t group = 0;
  uint32_t sequence = 0;     // number of the operation in its group, modulo 2^32
  uint32_t fingerprint = 0;  // over what the ranks' calls must share
  uint32_t chunk = 0;        // number of the chunk within the message; kCredit: how many
  uint32_t payload_bytes = 0;
  uint32_t acked = 0;          // all operations before this one have ended at the sender
  uint64_t message_bytes = 0;  // of the whole message, all chunks
};

// Whether messages of this type may have a payload.
constexpr bool carries_payload(MessageType type) {
  return type == MessageType::kData || type == MessageType::kAbort ||
         type == MessageType::kMessage || type == MessageType::kPart;
}

inline constexpr size_t kHeaderBytes = 48;

// The largest payload of one message that a receiver believes.
inline constexpr uint32_t kMaxPayloadBytes = 16u << 20;

void encode(const Header& header, std::span<std::byte, kHeaderBytes> out);

// kMismatch: another magic or wire version, an unknown type, or a length that cannot be.
Result<Header> decode(std::span<const std::byte, kHeaderBytes> in);

// Whether operation number `a` comes before `b`, both modulo 2^32.
constexpr bool before(uint32_t a, uint32_t b) { return static_cast<int32_t>(a - b) < 0; }

}  // namespace ciuic::wire
