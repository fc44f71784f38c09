// SPDX-License-Identifier: Apache-2.0
// receive_test.cc: a peer that says what no honest one does.

#include <gtest/gtest.h>

#include "engine/engine.h"
#include "engine/work_state.h"
#include "plan/registry.h"

namespace ciuic::engine {
namespace {

// Gives the same message over and over; after very many it gives up, and the test has failed.
class EndlessLink final : public transport::Link {
 public:
  explicit EndlessLink(wire::Header header) : header_(header) {}

  const char* transport() const override { return "endless"; }
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
    if (++received_ > 1'000'000) {
      ADD_FAILURE() << "everything else waits for one peer";
      return false;
    }
    *arrival = {header_, nullptr, 0};
    return true;
  }
  void place(std::byte* /*destination*/) override { FAIL() << "there is no payload"; }
  void release(uint64_t /*token*/) override {}
  void close() override {}
  size_t buffer_bytes() const override { return 0; }

 private:
  wire::Header header_;
  Status status_;
  uint64_t sent_ = 0;
  int received_ = 0;
};

TEST(Receive, APeerThatSendsWithoutEndKeepsNoDeadlineFromPassing) {
  memory::StagingPool staging(1 << 20);
  Engine engine(&staging);
  wire::Header header;
  header.type = wire::MessageType::kAck;
  header.epoch = 3;
  header.group = 7;
  GroupConfig config;
  config.id = header.group;
  config.epoch = header.epoch;
  config.links.emplace_back();
  config.links.push_back(std::make_unique<EndlessLink>(header));
  Group* group = engine.add_group(std::move(config));
  Request request;
  request.operation = "barrier";
  request.plan = std::make_shared<plan::Plan>(
      plan::make(plan::Operation::kBarrier, plan::Algorithm::kDirect, plan::Layout::one_host(2),
                 /*rank=*/0, /*root=*/0));
  request.timeout_ms = 1;
  request.deadline = 1'000'000;
  WorkState* work = engine.submit(group, std::move(request), /*now=*/0);
  engine.step(500'000);
  EXPECT_FALSE(work->done());
  engine.step(2'000'000);
  ASSERT_TRUE(work->done());
  EXPECT_EQ(work->status().code(), StatusCode::kTimeout);
  work->release();
}

}  // namespace
}  // namespace ciuic::engine
