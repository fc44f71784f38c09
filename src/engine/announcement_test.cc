// SPDX-License-Identifier: Apache-2.0
// announcement_test.cc: two ranks' calls are compared where one of them says what it has called,
// before, while and after the other is at it; and who waits long says it.

#include "engine/announcement.h"

#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <vector>

#include "engine/engine.h"
#include "engine/work_state.h"
#include "plan/registry.h"

namespace ciuic::engine {
namespace {

constexpr TimeNs kMs = 1'000'000;
constexpr TimeNs kTimeout = 4'000 * kMs;
constexpr TimeNs kShown = kTimeout / 8;

// Both ends of a link, in the test's hands.
struct Wire {
  std::deque<wire::Header> to_rank;
  std::vector<wire::Header> of_rank;

  int announcements() const {
    int count = 0;
    for (const wire::Header& header : of_rank) {
      if (header.type == wire::MessageType::kAnnounce) ++count;
    }
    return count;
  }
};

class WireLink final : public transport::Link {
 public:
  explicit WireLink(Wire* ends) : ends_(ends) {}

  const char* transport() const override { return "wire"; }
  size_t max_payload() const override { return wire::kMaxPayloadBytes; }
  bool progress() override { return false; }
  const Status& status() const override { return status_; }
  bool can_send(size_t /*payload_bytes*/) override { return true; }
  void send(const wire::Header& header, const std::byte* /*payload*/,
            transport::Publication* /*publication*/) override {
    ends_->of_rank.push_back(header);
  }
  uint64_t sent() const override { return ends_->of_rank.size(); }
  bool receive(transport::Arrival* arrival) override {
    if (ends_->to_rank.empty()) return false;
    *arrival = {ends_->to_rank.front(), nullptr, 0};
    ends_->to_rank.pop_front();
    return true;
  }
  void place(std::byte* /*destination*/) override { FAIL() << "there is no payload"; }
  void release(uint64_t /*token*/) override {}
  void close() override {}
  size_t buffer_bytes() const override { return 0; }

 private:
  Wire* ends_;
  Status status_;
};

// Rank 1 of two, which broadcasts or is sent to.
class Announcements : public testing::Test {
 protected:
  Announcements() {
    GroupConfig config;
    config.id = 7;
    config.epoch = 3;
    config.rank = 1;
    config.links.push_back(std::make_unique<WireLink>(&wire_));
    config.links.emplace_back();
    group_ = engine_.add_group(std::move(config));
  }

  ~Announcements() override {
    (void)engine_.remove_group(group_);
    for (WorkState* work : works_) work->release();
  }

  WorkState* broadcast(int64_t count, int root) {
    return call(plan::Operation::kBroadcast, count, root);
  }

  WorkState* call(plan::Operation operation, int64_t count, int root) {
    Request request;
    request.operation = plan::name_of(operation);
    request.reduces = operation == plan::Operation::kReduce;
    request.plan = std::make_shared<plan::Plan>(plan::make(
        operation, plan::Algorithm::kDirect, plan::Layout::one_host(2), /*rank=*/1, root));
    buffers_.emplace_back(static_cast<size_t>(count));
    request.input = request.output = buffers_.back().data();
    request.count = count;
    request.root = root;
    request.fingerprint = fingerprint_of(count, root);
    request.timeout_ms = kTimeout / kMs;
    request.deadline = kTimeout;
    works_.push_back(engine_.submit(group_, std::move(request), /*now=*/0));
    return works_.back();
  }

  static uint32_t fingerprint_of(int64_t count, int root) {
    return static_cast<uint32_t>(count * 2 + root + 1);
  }

  void hear(uint32_t sequence, int64_t count, int root) {
    wire::Header header;
    header.type = wire::MessageType::kAnnounce;
    header.epoch = 3;
    header.group = 7;
    header.sequence = sequence;
    describe({.operation = "broadcast",
              .sequence = sequence,
              .fingerprint = fingerprint_of(count, root),
              .dtype = DataType::kUInt8,
              .root = root,
              .count = count},
             &header);
    wire_.to_rank.push_back(header);
    engine_.step(1);
  }

  void expect_mismatch(const std::string& calls) const {
    const Status& status = engine_.group_status(group_);
    EXPECT_EQ(status.code(), StatusCode::kMismatch) << status.message();
    EXPECT_NE(status.message().find("on rank 0 and rank 1: " + calls), std::string::npos)
        << status.message();
  }

  memory::StagingPool staging_{1 << 20};
  Engine engine_{&staging_};
  Wire wire_;
  Group* group_ = nullptr;
  std::deque<std::vector<std::byte>> buffers_;
  std::vector<WorkState*> works_;
};

constexpr const char* kBothCalls =
    "rank 0 called broadcast(uint8, 100000 elements, root 0), "
    "rank 1 called broadcast(uint8, 10 elements, root 0).";

TEST_F(Announcements, AreComparedWithTheCallUnderWay) {
  broadcast(10, 0);
  hear(0, 100'000, 0);
  expect_mismatch(kBothCalls);
}

TEST_F(Announcements, AreKeptAndComparedWithALaterCall) {
  hear(0, 100'000, 0);
  EXPECT_TRUE(engine_.group_status(group_).ok());
  broadcast(10, 0);
  expect_mismatch(kBothCalls);
}

TEST_F(Announcements, AreComparedWithACallThatWaitsItsTurn) {
  for (int i = 0; i < kMaxActive; ++i) broadcast(50, 0);
  broadcast(10, 0);
  hear(kMaxActive, 100'000, 0);
  expect_mismatch(kBothCalls);
}

TEST_F(Announcements, AreComparedWithACallThatHasEnded) {
  const WorkState* work = broadcast(10, 1);
  engine_.step(1);
  EXPECT_TRUE(work->done());  // sent, unasked
  hear(0, 100'000, 1);
  expect_mismatch(
      "rank 0 called broadcast(uint8, 100000 elements, root 1), "
      "rank 1 called broadcast(uint8, 10 elements, root 1).");
}

TEST_F(Announcements, OfTheSameCallAreNothingNew) {
  hear(0, 100'000, 1);
  hear(0, 100'000, 1);
  const WorkState* first = broadcast(100'000, 1);
  while (engine_.step(2)) {
  }
  EXPECT_TRUE(first->done());
  hear(0, 100'000, 1);
  EXPECT_TRUE(engine_.group_status(group_).ok()) << engine_.group_status(group_).message();
}

TEST_F(Announcements, GoOnceToAPeerThatIsSilentForLong) {
  for (const int root : {0, 1}) {  // it waits for a message; for leave to send one
    SCOPED_TRACE(root);
    const int64_t count = root == 0 ? 10 : 100'000;
    const auto sequence = static_cast<uint32_t>(root);
    wire_.of_rank.clear();
    broadcast(count, root);
    engine_.step(kShown - 1);
    EXPECT_EQ(wire_.announcements(), 0);
    EXPECT_LE(engine_.next_deadline(), kShown) << "nobody would wake for it";
    EXPECT_TRUE(engine_.step(kShown)) << "something moved";
    engine_.step(kShown + 1);
    engine_.step(kTimeout - 1);
    ASSERT_EQ(wire_.announcements(), 1);
    const CallRecord call = described(wire_.of_rank.back());
    EXPECT_EQ(call.sequence, sequence);
    EXPECT_EQ(call.fingerprint, fingerprint_of(count, root));
    EXPECT_EQ(call.count, count);
  }
}

TEST_F(Announcements, GoToNobodyWhoHasBeenHeardFrom) {
  broadcast(10, 0);
  hear(0, 10, 0);
  engine_.step(kShown);
  engine_.step(kTimeout - 1);
  EXPECT_EQ(wire_.announcements(), 0);
}

TEST_F(Announcements, ACallIsKnownAfterItHasEnded) {
  const WorkState* work = call(plan::Operation::kReduce, 10, 0);
  engine_.step(1);
  EXPECT_TRUE(work->done());
  EXPECT_EQ(engine_.call_record(group_, 0).text(), "reduce(uint8, 10 elements, sum, root 0)");
  EXPECT_EQ(engine_.call_record(group_, 1).text(), "") << "not called yet";
}

TEST(Announcement, SaysTheCall) {
  for (const char* operation : {"all_reduce", "reduce", "broadcast", "all_gather", "barrier"}) {
    const std::string_view name = operation;
    const bool reduces = name == "all_reduce" || name == "reduce";
    const bool rooted = name == "reduce" || name == "broadcast";
    const CallRecord call{.operation = operation,
                          .fingerprint = 0x12345678,
                          .dtype = DataType::kInt64,
                          .op = ReduceOp::kProduct,
                          .reduces = reduces,
                          .root = rooted ? 65'000 : -1,
                          .count = 1'234'567'890'123};
    wire::Header header;
    describe(call, &header);
    EXPECT_EQ(described(header).text(), call.text());
    EXPECT_EQ(described(header).fingerprint, call.fingerprint);
  }
}

TEST(Announcement, OfNonsenseSaysNothing) {
  wire::Header header;
  describe({.operation = "something_else", .dtype = DataType::kInt32}, &header);
  EXPECT_EQ(described(header).text(), "");
  describe({.operation = "broadcast"}, &header);
  header.step = kDataTypes;
  EXPECT_EQ(described(header).text(), "");
  header.step = kReduceOps << 8;
  EXPECT_EQ(described(header).text(), "");
  header.step = 0;
  EXPECT_NE(described(header).text(), "");
  header.message_bytes = UINT64_MAX;
  EXPECT_EQ(described(header).text(), "");
}

}  // namespace
}  // namespace ciuic::engine
