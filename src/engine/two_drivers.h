// SPDX-License-Identifier: Apache-2.0
// two_drivers.h: for tests, two drivers in one process and links between them.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "ciuic/work.h"
#include "engine/driver.h"
#include "plan/registry.h"

namespace ciuic::engine {

// Messages on their way to one side, and whether that side has to be rung.
struct Inbox {
  struct Message {
    wire::Header header;
    std::vector<std::byte> payload;
  };
  std::mutex mutex;
  std::deque<Message> messages;
  std::optional<uint32_t> withheld;  // messages of this operation stay on their way
  bool lost = false;                 // the other side is gone
  bool sleeping = false;
  int slept = 0;  // times that it began to
  posix::Poller* poller = nullptr;

  void set_sleeping(bool now) {
    std::lock_guard<std::mutex> lock(mutex);
    sleeping = now;
    if (now) ++slept;
  }

  // Until it sleeps, and has begun to after it did so for the nth time. Returns how often it has.
  int until_asleep(int n = 0) {
    while (true) {
      std::unique_lock<std::mutex> lock(mutex);
      if (sleeping && slept > n) return slept;
      lock.unlock();
      std::this_thread::yield();
    }
  }

  void put(const wire::Header& header, std::span<const std::byte> payload) {
    std::lock_guard<std::mutex> lock(mutex);
    messages.push_back({header, {payload.begin(), payload.end()}});
    if (sleeping) poller->ring();
  }
};

// A link through two queues in one process; copies payloads at once.
class QueueLink final : public transport::Link {
 public:
  QueueLink(std::shared_ptr<Inbox> in, std::shared_ptr<Inbox> out)
      : in_(std::move(in)), out_(std::move(out)) {}

  const char* transport() const override { return "queue"; }
  size_t max_payload() const override { return wire::kMaxPayloadBytes; }
  bool progress() override {
    std::lock_guard<std::mutex> lock(in_->mutex);
    if (in_->lost && status_.ok()) status_ = Status(StatusCode::kPeerLost, "its process has ended");
    return false;
  }
  const Status& status() const override { return status_; }
  bool can_send(size_t) override { return true; }
  void send(const wire::Header& header, const std::byte* payload,
            transport::Publication*) override {
    ++sent_;
    out_->put(header, {payload, header.payload_bytes});
  }
  uint64_t sent() const override { return sent_; }
  bool receive(transport::Arrival* arrival) override {
    std::lock_guard<std::mutex> lock(in_->mutex);
    const auto next = std::find_if(
        in_->messages.begin(), in_->messages.end(),
        [&](const Inbox::Message& message) { return message.header.sequence != in_->withheld; });
    if (next == in_->messages.end()) return false;
    held_.push_back(std::move(*next));
    in_->messages.erase(next);
    arrival->header = held_.back().header;
    arrival->data = held_.back().payload.data();
    arrival->token = held_.size();
    return true;
  }
  void place(std::byte*) override { FAIL() << "payloads always come with their message"; }
  void release(uint64_t token) override { held_[token - 1].payload = {}; }
  void close() override {}
  size_t buffer_bytes() const override { return 0; }

 private:
  std::shared_ptr<Inbox> in_;
  std::shared_ptr<Inbox> out_;
  std::deque<Inbox::Message> held_;
  Status status_;
  uint64_t sent_ = 0;
};

class TwoDrivers : public testing::Test {
 protected:
  void SetUp() override {
    for (auto& inbox : inbox_) inbox = std::make_shared<Inbox>();
    for (int rank = 0; rank < 2; ++rank) {
      auto driver =
          Driver::create({.buffer_size = 1 << 20, .spin_us = spin_us(), .grace_us = grace_us()});
      ASSERT_TRUE(driver.ok());
      driver_[rank] = *driver;
      inbox_[rank]->poller = driver_[rank]->poller();
      GroupConfig config;
      config.rank = rank;
      config.links.resize(2);
      config.links[1 - rank] = std::make_unique<QueueLink>(inbox_[rank], inbox_[1 - rank]);
      group_[rank] = driver_[rank]->add_group(std::move(config), hooks_of(inbox_[rank]));
    }
    use(plan::Algorithm::kOneShot);
  }

  void use(plan::Algorithm algorithm) {
    for (int rank = 0; rank < 2; ++rank) {
      plan_[rank] = std::make_shared<const plan::Plan>(
          plan::make(plan::Operation::kAllReduce, algorithm, plan::Layout::one_host(2), rank, 0));
    }
  }

  void TearDown() override {
    for (int rank = 0; rank < 2; ++rank) {
      if (group_[rank] != nullptr) (void)driver_[rank]->remove_group(group_[rank]);
    }
  }

  virtual int64_t spin_us() const { return -1; }
  virtual int64_t grace_us() const { return DriverOptions().grace_us; }

  static GroupHooks hooks_of(const std::shared_ptr<Inbox>& inbox) {
    return {.set_sleeping = [inbox](bool sleeping) { inbox->set_sleeping(sleeping); },
            .has_sockets = false,
            .local_ranks = 2,
            .local_cores = 2};
  }

  Work all_reduce(int rank, int64_t* value, bool wait_follows, int64_t timeout_ms = 60'000) {
    Request request;
    request.operation = "all_reduce";
    request.plan = plan_[rank];
    request.input = reinterpret_cast<std::byte*>(value);
    request.output = reinterpret_cast<std::byte*>(value);
    request.count = 1;
    request.dtype = DataType::kInt64;
    request.timeout_ms = timeout_ms;
    const TimeNs now = now_ns();
    request.deadline = deadline_after(now, timeout_ms);
    return Work(driver_[rank]->submit(group_[rank], {&request, 1}, now, wait_follows));
  }

  std::shared_ptr<Inbox> inbox_[2];
  std::shared_ptr<Driver> driver_[2];
  Group* group_[2] = {nullptr, nullptr};
  std::shared_ptr<const plan::Plan> plan_[2];
};

}  // namespace ciuic::engine
