// SPDX-License-Identifier: Apache-2.0
// header_test.cc: every field survives; every header that cannot be is refused.

#include "wire/header.h"

#include <gtest/gtest.h>

#include <random>

namespace ciuic::wire {
namespace {

using Bytes = std::array<std::byte, kHeaderBytes>;

Header sample() {
  Header header;
  header.type = MessageType::kData;
  header.lane = 0xa1;
  header.step = 0xb2c3;
  header.epoch = 0xd4e5f607;
  header.group = 0x18293a4b;
  header.sequence = 0x5c6d7e8f;
  header.fingerprint = 0x90a1b2c3;
  header.chunk = 0xd4c5b6a7;
  header.payload_bytes = 0x00f80706;
  header.acked = 0x15243342;
  header.message_bytes = 0x5160718293a4b5c6;
  return header;
}

Bytes encoded(const Header& header) {
  Bytes bytes;
  bytes.fill(std::byte{0xee});
  encode(header, bytes);
  return bytes;
}

void expect_same(const Header& a, const Header& b) {
  EXPECT_EQ(a.type, b.type);
  EXPECT_EQ(a.lane, b.lane);
  EXPECT_EQ(a.step, b.step);
  EXPECT_EQ(a.epoch, b.epoch);
  EXPECT_EQ(a.group, b.group);
  EXPECT_EQ(a.sequence, b.sequence);
  EXPECT_EQ(a.fingerprint, b.fingerprint);
  EXPECT_EQ(a.chunk, b.chunk);
  EXPECT_EQ(a.payload_bytes, b.payload_bytes);
  EXPECT_EQ(a.acked, b.acked);
  EXPECT_EQ(a.message_bytes, b.message_bytes);
}

TEST(Header, SurvivesTheWay) {
  const Result<Header> header = decode(encoded(sample()));
  ASSERT_TRUE(header.ok()) << header.status().message();
  expect_same(*header, sample());
}

TEST(Header, KeepsItsBytesFromVersionToVersion) {
  // These bytes are the wire format: they change only together with kVersion.
  const std::array<uint8_t, kHeaderBytes> expected = {
      'C',  'I',  'U',  'C',  1,    1,    0xa1, 0,    0xc3, 0xb2, 0,    0,
      0x07, 0xf6, 0xe5, 0xd4, 0x4b, 0x3a, 0x29, 0x18, 0x8f, 0x7e, 0x6d, 0x5c,
      0xc3, 0xb2, 0xa1, 0x90, 0xa7, 0xb6, 0xc5, 0xd4, 0x06, 0x07, 0xf8, 0x00,
      0x42, 0x33, 0x24, 0x15, 0xc6, 0xb5, 0xa4, 0x93, 0x82, 0x71, 0x60, 0x51};
  const Bytes bytes = encoded(sample());
  for (size_t i = 0; i < kHeaderBytes; ++i) {
    EXPECT_EQ(static_cast<uint8_t>(bytes[i]), expected[i]) << "byte " << i;
  }
}

TEST(Header, SurvivesWithEveryType) {
  for (int type = 1; type <= 6; ++type) {
    Header header = sample();
    header.type = static_cast<MessageType>(type);
    if (header.type != MessageType::kData && header.type != MessageType::kAbort) {
      header.payload_bytes = 0;
    }
    const Result<Header> back = decode(encoded(header));
    ASSERT_TRUE(back.ok()) << type << ": " << back.status().message();
    expect_same(*back, header);
  }
}

// Changes one byte of a good header; all changes of that byte must be refused.
void expect_byte_is_checked(size_t at, std::initializer_list<uint8_t> allowed = {}) {
  for (int value = 0; value < 256; ++value) {
    Bytes bytes = encoded(sample());
    if (bytes[at] == static_cast<std::byte>(value)) continue;
    if (std::find(allowed.begin(), allowed.end(), value) != allowed.end()) continue;
    bytes[at] = static_cast<std::byte>(value);
    const Result<Header> header = decode(bytes);
    ASSERT_FALSE(header.ok()) << "byte " << at << " = " << value;
    EXPECT_EQ(header.status().code(), StatusCode::kMismatch);
    EXPECT_FALSE(header.status().message().empty());
  }
}

TEST(Header, RefusesAnotherMagicVersionTypeOrReservedByte) {
  for (const size_t at : {0, 1, 2, 3, 4, 7, 10, 11}) expect_byte_is_checked(at);
  expect_byte_is_checked(5, {1, 5, 7, 10});  // the types that have a payload
}

TEST(Header, NamesBothVersions) {
  Bytes bytes = encoded(sample());
  bytes[4] = std::byte{9};
  const std::string message = decode(bytes).status().message();
  EXPECT_NE(message.find("version 9"), std::string::npos) << message;
  EXPECT_NE(message.find("speaks 1"), std::string::npos) << message;
}

TEST(Header, RefusesLengthsThatCannotBe) {
  Header header = sample();
  header.payload_bytes = kMaxPayloadBytes;
  EXPECT_TRUE(decode(encoded(header)).ok());
  header.payload_bytes = kMaxPayloadBytes + 1;
  EXPECT_EQ(decode(encoded(header)).status().code(), StatusCode::kMismatch);

  header = sample();
  header.message_bytes = header.payload_bytes;
  EXPECT_TRUE(decode(encoded(header)).ok());
  header.message_bytes = header.payload_bytes - 1;
  EXPECT_EQ(decode(encoded(header)).status().code(), StatusCode::kMismatch);

  for (const MessageType type :
       {MessageType::kAnnounce, MessageType::kCredit, MessageType::kAck, MessageType::kGoodbye}) {
    header = sample();
    header.type = type;
    EXPECT_EQ(decode(encoded(header)).status().code(), StatusCode::kMismatch);
  }
}

TEST(Header, RefusesEveryTruncation) {
  // A header cut short is followed by whatever stands in the buffer: zeros, or old bytes.
  const Bytes good = encoded(sample());
  for (size_t kept = 0; kept < 6; ++kept) {
    Bytes bytes{};
    std::copy_n(good.begin(), kept, bytes.begin());
    EXPECT_FALSE(decode(bytes).ok()) << kept;
  }
}

TEST(Header, RefusesGarbage) {
  std::mt19937_64 random(20261130);
  for (int round = 0; round < 20'000; ++round) {
    Bytes bytes;
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
    ASSERT_FALSE(decode(bytes).ok());
  }
}

TEST(Header, WhatDecodesEncodesToTheSameBytes) {
  std::mt19937_64 random(20261201);
  int decoded = 0;
  for (int round = 0; round < 20'000; ++round) {
    Bytes bytes = encoded(sample());
    for (int change = 0; change < 3; ++change) {
      bytes[random() % kHeaderBytes] = static_cast<std::byte>(random());
    }
    const Result<Header> header = decode(bytes);
    if (!header.ok()) continue;
    ++decoded;
    ASSERT_EQ(encoded(*header), bytes);
  }
  EXPECT_GT(decoded, 1000);
}

TEST(Header, OrdersNumbersAcrossTheirWrap) {
  EXPECT_TRUE(before(1, 2));
  EXPECT_FALSE(before(2, 1));
  EXPECT_FALSE(before(7, 7));
  EXPECT_TRUE(before(0xffffffff, 0));
  EXPECT_TRUE(before(0xfffffff0, 5));
  EXPECT_FALSE(before(5, 0xfffffff0));
}

}  // namespace
}  // namespace ciuic::wire
