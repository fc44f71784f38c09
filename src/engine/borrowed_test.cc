// SPDX-License-Identifier: Apache-2.0
// borrowed_test.cc: payloads that lie in the sender's own memory, which it may write to once it has
// left: what was read then is no result.

#include <gtest/gtest.h>

#include <vector>

#include "engine/engine.h"
#include "engine/work_state.h"
#include "plan/registry.h"

namespace ciuic::engine {
namespace {

constexpr int64_t kBytes = 16 * 1024;

// Gives the messages of a list, whose payload is its own memory.
class LendingLink final : public transport::Link {
 public:
  const char* transport() const override { return "lending"; }
  size_t max_payload() const override { return wire::kMaxPayloadBytes; }
  bool progress() override { return false; }
  const Status& status() const override { return status_; }
  bool can_send(size_t /*payload_bytes*/) override { return true; }
  void send(const wire::Header& /*header*/, const std::byte* /*payload*/,
            transport::Publication* /*publication*/) override {
    ++sent_;
  }
  uint64_t sent() const override { return sent_; }
  bool receive(transport::Arrival* arrival) override {
    if (received_ == messages.size()) return false;
    const wire::Header& header = messages[received_];
    *arrival = {header, header.payload_bytes > 0 ? memory.data() : nullptr, received_++, true};
    return true;
  }
  void place(std::byte* /*destination*/) override { FAIL() << "it came with its data"; }
  void release(uint64_t /*token*/) override { ++released; }
  bool is_intact(uint64_t token) override {
    EXPECT_LT(token, received_);
    EXPECT_EQ(released, 0) << "asked after the payload was given back";
    ++asked;
    return !has_left;
  }
  void close() override {}
  size_t buffer_bytes() const override { return 0; }

  std::vector<wire::Header> messages;
  std::vector<std::byte> memory = std::vector<std::byte>(kBytes, std::byte{7});
  bool has_left = false;
  int released = 0;
  int asked = 0;

 private:
  Status status_;
  uint64_t sent_ = 0;
  size_t received_ = 0;
};

// Rank 0 of two; rank 1 lends.
class Borrowed : public testing::TestWithParam<bool> {
 protected:
  Borrowed() {
    GroupConfig config;
    config.id = 7;
    config.epoch = 3;
    config.links.emplace_back();
    auto link = std::make_unique<LendingLink>();
    link_ = link.get();
    link_->has_left = GetParam();
    config.links.push_back(std::move(link));
    group_ = engine_.add_group(std::move(config));
  }

  void arrives(wire::MessageType type, uint64_t payload_bytes = kBytes) {
    wire::Header header;
    header.type = type;
    header.epoch = 3;
    header.group = 7;
    header.step = type == wire::MessageType::kData ? 0 : static_cast<uint16_t>(DataType::kUInt8);
    header.payload_bytes = static_cast<uint32_t>(payload_bytes);
    header.message_bytes = kBytes;
    link_->messages.push_back(header);
  }

  WorkState* submit(plan::Operation operation) {
    Request request;
    request.operation = "test";
    request.plan = std::make_shared<plan::Plan>(
        plan::make(operation, plan::Algorithm::kDirect, plan::Layout::one_host(2), 0, 1));
    return submit(std::move(request));
  }

  WorkState* submit(Request request) {
    request.input = input_.data();
    request.output = output_.data();
    request.count = kBytes;
    request.dtype = DataType::kUInt8;
    request.deadline = kNever;
    return engine_.submit(group_, std::move(request), /*now=*/0);
  }

  WorkState* receive() {
    Request request;
    request.operation = "recv";
    request.kind = RequestKind::kReceive;
    request.peer = 1;
    request.tag = 0;
    return submit(std::move(request));
  }

  // Ended well with the payload in the output; or with an error, where the peer has left.
  void expect_end(WorkState* work) {
    for (int i = 0; i < 200 && !work->done(); ++i) engine_.step(/*now=*/1);
    ASSERT_TRUE(work->done());
    EXPECT_EQ(link_->asked, 1);
    if (GetParam()) {
      EXPECT_EQ(work->status().code(), StatusCode::kPeerLost);
      EXPECT_NE(work->status().message().find("rank 1"), std::string::npos);
      EXPECT_EQ(engine_.active(), 0);
    } else {
      EXPECT_TRUE(work->status().ok()) << work->status().message();
      EXPECT_EQ(output_.back(), std::byte{7});
      EXPECT_EQ(link_->released, 1);
    }
    work->release();
    EXPECT_TRUE(engine_.remove_group(group_).ok());
    staging_.trim();
    EXPECT_EQ(staging_.held(), 0u);
  }

  memory::StagingPool staging_{1 << 20};
  Engine engine_{&staging_};
  LendingLink* link_ = nullptr;
  Group* group_ = nullptr;
  std::vector<std::byte> input_ = std::vector<std::byte>(kBytes, std::byte{0});
  std::vector<std::byte> output_ = std::vector<std::byte>(kBytes, std::byte{0});
};

TEST_P(Borrowed, IsCopiedIntoTheOutput) {
  WorkState* work = submit(plan::Operation::kBroadcast);
  arrives(wire::MessageType::kData);
  expect_end(work);
}

TEST_P(Borrowed, IsReduced) {
  Request request;
  request.operation = "reduce";
  request.reduces = true;
  request.plan = std::make_shared<plan::Plan>(plan::make(
      plan::Operation::kReduce, plan::Algorithm::kDirect, plan::Layout::one_host(2), 0, 0));
  WorkState* work = submit(std::move(request));
  arrives(wire::MessageType::kData);
  expect_end(work);
}

TEST_P(Borrowed, IsStagedWhereItComesEarly) {
  arrives(wire::MessageType::kData);
  engine_.step(/*now=*/1);
  WorkState* work = submit(plan::Operation::kBroadcast);
  expect_end(work);
}

TEST_P(Borrowed, IsStagedWhereNobodyAsksForIt) {
  arrives(wire::MessageType::kMessage);
  engine_.step(/*now=*/1);
  WorkState* work = receive();
  expect_end(work);
}

TEST_P(Borrowed, IsPartOfAMessage) {
  WorkState* work = receive();
  arrives(wire::MessageType::kOffer, 0);
  arrives(wire::MessageType::kPart);
  expect_end(work);
}

INSTANTIATE_TEST_SUITE_P(Peers, Borrowed, testing::Bool(),
                         [](const auto& of) { return of.param ? "ThatHasLeft" : "ThatIsThere"; });

}  // namespace
}  // namespace ciuic::engine
