// SPDX-License-Identifier: Apache-2.0
// channel_test.cc: simulated channels keep the contract of transport::Link, and hold users to it.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "sim/slot_channel.h"
#include "sim/stream_channel.h"

namespace ciuic::sim {
namespace {

class FakeWorld final : public World {
 public:
  TimeNs now() const override { return now_; }
  void wake(int /*process*/, TimeNs at) override { latest_ = std::max(latest_, at); }
  void complain(const std::string& what) override { complaints.push_back(what); }
  void sending(int /*from*/, int /*to*/, const wire::Header& /*header*/) override {}

  // To the last moment at which anything happens.
  void pass() { now_ = std::max(now_ + 1, latest_); }

  std::vector<std::string> complaints;

 private:
  TimeNs now_ = 0;
  TimeNs latest_ = 0;
};

wire::Header data_header(uint32_t number, size_t bytes) {
  wire::Header header;
  header.chunk = number;
  header.payload_bytes = static_cast<uint32_t>(bytes);
  header.message_bytes = bytes;
  return header;
}

std::vector<std::byte> payload(size_t bytes, uint64_t seed) {
  std::vector<std::byte> made(bytes);
  spoil(made.data(), bytes, seed);
  return made;
}

TEST(StreamChannel, DeliversInOrderThroughASmallBuffer) {
  for (const size_t inline_bytes : {size_t{0}, size_t{30}, size_t{52}}) {
    FakeWorld world;
    ChannelOptions options;
    options.socket_bytes = 100;
    options.inline_bytes = inline_bytes;
    StreamChannel channel(&world, 0, 1, options, Random(4));
    std::vector<std::vector<std::byte>> payloads;
    std::vector<std::byte> target(1000);
    uint32_t sent = 0;
    uint32_t received = 0;
    for (int i = 0; i < 40; ++i) payloads.push_back(payload(i % 5 == 0 ? 0 : i * 17, i));
    bool placed = false;
    for (int round = 0; received < 40 && round < 100'000; ++round) {
      if (sent < 40 && channel.can_send(payloads[sent].size())) {
        channel.send(data_header(sent, payloads[sent].size()), payloads[sent].data(), nullptr);
        ++sent;
      }
      channel.push();
      channel.pull();
      transport::Arrival arrival;
      while (channel.receive(&arrival)) {
        ASSERT_EQ(arrival.header.chunk, received);
        const std::vector<std::byte>& expected = payloads[received];
        if (arrival.data == nullptr && !expected.empty()) {
          ASSERT_FALSE(placed);
          placed = true;
          channel.place(target.data());
          continue;
        }
        if (!expected.empty()) {
          EXPECT_EQ(std::memcmp(arrival.data, expected.data(), expected.size()), 0);
        }
        if (!placed && arrival.data != nullptr) channel.release(arrival.token);
        placed = false;
        ++received;
      }
      world.pass();
    }
    channel.push();
    EXPECT_EQ(received, 40u);
    EXPECT_EQ(channel.sent(), 40u);
    EXPECT_EQ(channel.unreleased(), 0u);
    EXPECT_TRUE(world.complaints.empty()) << world.complaints.front();
  }
}

TEST(StreamChannel, ReadsThePayloadLateAndSeesItChange) {
  FakeWorld world;
  StreamChannel channel(&world, 0, 1, {}, Random(1));
  std::vector<std::byte> bytes = payload(50, 1);
  ASSERT_TRUE(channel.can_send(50));
  channel.send(data_header(0, 50), bytes.data(), nullptr);
  EXPECT_EQ(channel.sent(), 0u);
  bytes[3] ^= std::byte{1};
  for (int i = 0; i < 100; ++i) {
    channel.push();
    world.pass();
  }
  EXPECT_EQ(channel.sent(), 1u);
  EXPECT_EQ(world.complaints.size(), 1u);
}

TEST(StreamChannel, CutOffNothingMoreArrives) {
  FakeWorld world;
  StreamChannel channel(&world, 0, 1, {}, Random(1));
  const std::vector<std::byte> bytes = payload(50, 1);
  ASSERT_TRUE(channel.can_send(50));
  channel.send(data_header(0, 50), bytes.data(), nullptr);
  channel.push();
  channel.cut(world.now() + 1);  // before the latency is over
  world.pass();
  transport::Arrival arrival;
  EXPECT_FALSE(channel.receive(&arrival));
  EXPECT_FALSE(channel.can_send(0));
}

TEST(SlotChannel, ReadersShareASlotUntilAllHaveReleasedIt) {
  FakeWorld world;
  const auto pool = std::make_shared<SlotPool>(1);
  ChannelOptions options;
  options.inline_bytes = 16;
  SlotChannel one(&world, 0, 1, options, Random(1), pool);
  SlotChannel two(&world, 0, 2, options, Random(2), pool);
  const std::vector<std::byte> bytes = payload(50, 1);
  transport::Publication publication;
  ASSERT_TRUE(one.can_send(50));
  ASSERT_TRUE(two.can_send(50));
  one.send(data_header(0, 50), bytes.data(), &publication);
  two.send(data_header(0, 50), bytes.data(), &publication);  // into the same slot
  EXPECT_EQ(one.sent(), 1u);
  world.pass();
  transport::Arrival first;
  transport::Arrival second;
  ASSERT_TRUE(one.receive(&first));
  ASSERT_TRUE(two.receive(&second));
  EXPECT_FALSE(one.can_send(50));
  one.release(first.token);
  EXPECT_FALSE(one.can_send(50));
  EXPECT_EQ(std::memcmp(second.data, bytes.data(), 50), 0);
  two.release(second.token);
  EXPECT_TRUE(one.can_send(50));
  EXPECT_NE(std::memcmp(second.data, bytes.data(), 50), 0);  // garbage now
  EXPECT_TRUE(world.complaints.empty());
}

TEST(SlotChannel, APublicationThatIsOverIsNotShared) {
  FakeWorld world;
  const auto pool = std::make_shared<SlotPool>(1);
  SlotChannel one(&world, 0, 1, {}, Random(1), pool);
  SlotChannel two(&world, 0, 2, {}, Random(2), pool);
  const std::vector<std::byte> bytes = payload(50, 1);
  const std::vector<std::byte> other = payload(50, 2);
  transport::Publication publication;
  transport::Arrival arrival;
  ASSERT_TRUE(one.can_send(50));
  one.send(data_header(0, 50), bytes.data(), &publication);
  world.pass();
  ASSERT_TRUE(one.receive(&arrival));
  one.release(arrival.token);
  ASSERT_TRUE(one.can_send(50));
  one.send(data_header(1, 50), other.data(), nullptr);  // reuses the slot
  world.pass();
  ASSERT_TRUE(one.receive(&arrival));
  one.release(arrival.token);
  ASSERT_TRUE(two.can_send(50));
  two.send(data_header(0, 50), bytes.data(), &publication);
  world.pass();
  ASSERT_TRUE(two.receive(&arrival));
  EXPECT_EQ(std::memcmp(arrival.data, bytes.data(), 50), 0);
}

TEST(Channel, HoldsItsUsersToTheContract) {
  FakeWorld world;
  SlotChannel channel(&world, 0, 1, {}, Random(1), std::make_shared<SlotPool>(2));
  channel.send(data_header(0, 0), nullptr, nullptr);
  EXPECT_EQ(world.complaints.size(), 1u);  // without can_send()
  channel.release(77);
  EXPECT_EQ(world.complaints.size(), 2u);  // a token that is not out
  std::byte memory[8];
  channel.place(memory);
  EXPECT_EQ(world.complaints.size(), 3u);  // nothing was announced
}

}  // namespace
}  // namespace ciuic::sim
