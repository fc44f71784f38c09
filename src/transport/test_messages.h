// SPDX-License-Identifier: Apache-2.0
// test_messages.h: numbered messages, their sender and a checking receiver, for the tests of links.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <utility>
#include <vector>

#include "transport/link.h"

namespace ciuic::transport {

// The bytes of message `number`: none equals its neighbour's, at no offset.
inline std::vector<std::byte> pattern(uint32_t number, size_t bytes) {
  std::vector<std::byte> data(bytes);
  uint32_t state = number * 2654435761u + 12345;
  for (std::byte& byte : data) {
    state = state * 1664525 + 1013904223;
    byte = static_cast<std::byte>(state >> 24);
  }
  return data;
}

inline wire::Header data_header(uint32_t number, size_t bytes) {
  wire::Header header;
  header.type = wire::MessageType::kData;
  header.lane = static_cast<uint8_t>(number * 7);
  header.step = static_cast<uint16_t>(number * 11);
  header.epoch = 3;
  header.group = 7;
  header.sequence = number;
  header.fingerprint = number * 2654435761u;
  header.chunk = number ^ 0x5555;
  header.payload_bytes = static_cast<uint32_t>(bytes);
  header.acked = number - 1;
  header.message_bytes = bytes + (uint64_t{number} << 33);
  return header;
}

inline void expect_header(const wire::Header& found, const wire::Header& expected) {
  EXPECT_EQ(found.type, expected.type);
  EXPECT_EQ(found.lane, expected.lane);
  EXPECT_EQ(found.step, expected.step);
  EXPECT_EQ(found.epoch, expected.epoch);
  EXPECT_EQ(found.group, expected.group);
  EXPECT_EQ(found.sequence, expected.sequence);
  EXPECT_EQ(found.fingerprint, expected.fingerprint);
  EXPECT_EQ(found.chunk, expected.chunk);
  EXPECT_EQ(found.payload_bytes, expected.payload_bytes);
  EXPECT_EQ(found.acked, expected.acked);
  EXPECT_EQ(found.message_bytes, expected.message_bytes);
}

// Receives the messages 1, 2, ... of one link and checks that they are what data_header() and
// pattern() say. Holds payloads until told to release them.
class Checker {
 public:
  explicit Checker(Link* link) : link_(link) {}

  struct Held {
    uint32_t number;
    const std::byte* data;
    size_t bytes;
    uint64_t token;
    bool placed;
  };

  // Takes one message, if there is one.
  bool take() {
    Arrival arrival;
    if (!link_->receive(&arrival)) return false;
    if (arrival.data == nullptr && arrival.header.payload_bytes > 0) {
      place_.resize(arrival.header.payload_bytes);
      link_->place(place_.data());
      if (!link_->receive(&arrival)) return false;
    }
    ++received_;
    const size_t bytes = arrival.header.payload_bytes;
    expect_header(arrival.header, data_header(received_, bytes));
    const bool placed = bytes > 0 && arrival.data == place_.data();
    held_.push_back({received_, arrival.data, bytes, arrival.token, placed});
    check(held_.back());
    if (placed) held_.pop_back();
    return true;
  }

  // Looks at a held payload once more, then gives it back.
  void release(size_t index) {
    check(held_[index]);
    link_->release(held_[index].token);
    held_.erase(held_.begin() + static_cast<std::ptrdiff_t>(index));
  }
  void release_all() {
    while (!held_.empty()) release(held_.size() - 1);
  }

  size_t held() const { return held_.size(); }
  uint32_t received() const { return received_; }

 private:
  static void check(const Held& held) {
    const std::vector<std::byte> expected = pattern(held.number, held.bytes);
    if (held.bytes == 0) return;
    EXPECT_EQ(std::memcmp(held.data, expected.data(), held.bytes), 0)
        << "message " << held.number << " of " << held.bytes << " bytes";
  }

  Link* link_;
  uint32_t received_ = 0;
  std::vector<std::byte> place_;
  std::vector<Held> held_;
};

// Sends the messages 1, 2, ... over one link. Each payload is spoilt as soon as the link says that
// it no longer needs it.
class Feeder {
 public:
  explicit Feeder(Link* link) : link_(link) {}

  bool send(size_t bytes) {
    if (!link_->can_send(bytes)) return false;
    ++number_;
    payloads_.push_back(pattern(number_, bytes));
    link_->send(data_header(number_, bytes), payloads_.back().data(), nullptr);
    spoil();
    return true;
  }

  void spoil() {
    for (; spoilt_ < link_->sent(); ++spoilt_) {
      std::vector<std::byte>& payload = payloads_[spoilt_];
      std::fill(payload.begin(), payload.end(), std::byte{0xdd});
      payload = {};
    }
  }

  uint32_t number() const { return number_; }

 private:
  Link* link_;
  uint32_t number_ = 0;
  uint64_t spoilt_ = 0;
  std::vector<std::vector<std::byte>> payloads_;
};

}  // namespace ciuic::transport
