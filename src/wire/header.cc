// SPDX-License-Identifier: Apache-2.0
// header.cc: the header's bytes.
//
//   offset  0  magic "CIUC"       16  group             32  payload_bytes
//           4  version, type      20  sequence          36  acked
//           6  lane, reserved 0   24  fingerprint       40  message_bytes (8)
//           8  step, reserved 0   28  chunk
//          12  epoch

#include "wire/header.h"

#include <fmt/format.h>

namespace ciuic::wire {

static constexpr uint32_t kMagic = 0x43554943;  // "CIUC" in the order of the bytes

template <typename T>
static void put(std::byte* at, T value) {
  for (size_t i = 0; i < sizeof(T); ++i) {
    at[i] = static_cast<std::byte>(static_cast<uint64_t>(value) >> (8 * i));
  }
}

template <typename T>
static T get(const std::byte* at) {
  uint64_t value = 0;
  for (size_t i = 0; i < sizeof(T); ++i) value |= static_cast<uint64_t>(at[i]) << (8 * i);
  return static_cast<T>(value);
}

void encode(const Header& header, std::span<std::byte, kHeaderBytes> out) {
  std::byte* at = out.data();
  put<uint32_t>(at, kMagic);
  put<uint8_t>(at + 4, kVersion);
  put<uint8_t>(at + 5, static_cast<uint8_t>(header.type));
  put<uint16_t>(at + 6, header.lane);
  put<uint32_t>(at + 8, header.step);
  put<uint32_t>(at + 12, header.epoch);
  put<uint32_t>(at + 16, header.group);
  put<uint32_t>(at + 20, header.sequence);
  put<uint32_t>(at + 24, header.fingerprint);
  put<uint32_t>(at + 28, header.chunk);
  put<uint32_t>(at + 32, header.payload_bytes);
  put<uint32_t>(at + 36, header.acked);
  put<uint64_t>(at + 40, header.message_bytes);
}

static Status mismatch(std::string what) { return Status(StatusCode::kMismatch, std::move(what)); }

Result<Header> decode(std::span<const std::byte, kHeaderBytes> in) {
  const std::byte* at = in.data();
  if (get<uint32_t>(at) != kMagic) return mismatch("bytes that are no header of Ciuic");
  const auto version = get<uint8_t>(at + 4);
  if (version != kVersion) {
    return mismatch(fmt::format("wire version {}; this library speaks {}", version, kVersion));
  }
  const auto type = get<uint8_t>(at + 5);
  if (type < static_cast<uint8_t>(MessageType::kData) ||
      type > static_cast<uint8_t>(kLastMessageType)) {
    return mismatch(fmt::format("a message of unknown type {}", type));
  }
  // Reserved bytes are zero in version 1, so that a later one can give them a meaning.
  if (get<uint8_t>(at + 7) != 0 || get<uint16_t>(at + 10) != 0) {
    return mismatch("a header whose reserved bytes are not zero");
  }
  Header header;
  header.type = static_cast<MessageType>(type);
  header.lane = get<uint8_t>(at + 6);
  header.step = get<uint16_t>(at + 8);
  header.epoch = get<uint32_t>(at + 12);
  header.group = get<uint32_t>(at + 16);
  header.sequence = get<uint32_t>(at + 20);
  header.fingerprint = get<uint32_t>(at + 24);
  header.chunk = get<uint32_t>(at + 28);
  header.payload_bytes = get<uint32_t>(at + 32);
  header.acked = get<uint32_t>(at + 36);
  header.message_bytes = get<uint64_t>(at + 40);
  if (header.payload_bytes > kMaxPayloadBytes) {
    return mismatch(fmt::format("a payload of {} bytes; {} are the most", header.payload_bytes,
                                kMaxPayloadBytes));
  }
  if (!carries_payload(header.type) && header.payload_bytes != 0) {
    return mismatch(fmt::format("a payload of {} bytes in a message of type {}, which has none",
                                header.payload_bytes, type));
  }
  if (carries_payload(header.type) && header.payload_bytes > header.message_bytes) {
    return mismatch(fmt::format("a chunk of {} bytes in a message of {}", header.payload_bytes,
                                header.message_bytes));
  }
  return header;
}

}  // namespace ciuic::wire
