// SPDX-License-Identifier: Apache-2.0
// driver_test.cc: callers and completions, over links between two drivers.

#include "engine/driver.h"

#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "ciuic/work.h"
#include "engine/two_drivers.h"
#include "plan/registry.h"

namespace ciuic::engine {
namespace {

// With this, every wait that does not end at once sleeps.
class TwoDriversThatSleep : public TwoDrivers {
  int64_t spin_us() const override { return 0; }
};

TEST_F(TwoDrivers, BlockingCallsMeet) {
  constexpr int kCalls = 2000;
  const auto run = [&](int rank) {
    for (int i = 0; i < kCalls; ++i) {
      int64_t value = i + rank;
      ASSERT_TRUE(all_reduce(rank, &value, true).wait().ok());
      ASSERT_EQ(value, 2 * i + 1);
    }
  };
  std::thread other(run, 1);
  run(0);
  other.join();
}

TEST_F(TwoDriversThatSleep, BlockingCallsMeet) {
  const auto run = [&](int rank) {
    for (int i = 0; i < 300; ++i) {
      int64_t value = i + rank;
      ASSERT_TRUE(all_reduce(rank, &value, true).wait().ok());
      ASSERT_EQ(value, 2 * i + 1);
    }
  };
  std::thread other(run, 1);
  run(0);
  other.join();
}

TEST_F(TwoDrivers, CompletionsMayCallOperations) {
  int64_t value[2] = {1, 2};
  int64_t next[2] = {10, 20};
  std::promise<Status> ended[2];
  for (int rank = 0; rank < 2; ++rank) {
    all_reduce(rank, &value[rank], false).on_done([&, rank](const Status&) {
      ended[rank].set_value(all_reduce(rank, &next[rank], true).wait());
    });
  }
  for (auto& promise : ended) EXPECT_TRUE(promise.get_future().get().ok());
  EXPECT_EQ(next[0], 30);
  EXPECT_EQ(next[1], 30);
}

TEST_F(TwoDrivers, ManyThreadsWaitAtOnce) {
  constexpr int kThreads = 4;
  constexpr int kCalls = 100;
  // Each thread's operation is any of those under way; what counts is that every wait ends.
  for (int i = 0; i < kCalls; ++i) {
    std::vector<int64_t> values(2 * kThreads, 1);
    std::vector<std::thread> threads;
    for (int t = 0; t < 2 * kThreads; ++t) {
      threads.emplace_back(
          [&, t] { EXPECT_TRUE(all_reduce(t % 2, &values[t], t % 4 < 2).wait().ok()); });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(values, std::vector<int64_t>(2 * kThreads, 2));
  }
}

TEST_F(TwoDrivers, WaitForGivesUpAndTheOperationGoesOn) {
  int64_t value[2] = {5, 6};
  Work work = all_reduce(0, &value[0], true);
  EXPECT_EQ(work.wait_for(1).code(), StatusCode::kTimeout);
  EXPECT_FALSE(work.done());
  EXPECT_TRUE(all_reduce(1, &value[1], true).wait().ok());
  EXPECT_TRUE(work.wait().ok());
  EXPECT_EQ(value[0], 11);
}

TEST_F(TwoDrivers, APeerThatNeverComesIsNamed) {
  int64_t value = 1;
  const TimeNs before = now_ns();
  const Status status = all_reduce(0, &value, true, 50).wait();
  EXPECT_EQ(status.code(), StatusCode::kTimeout);
  EXPECT_GE(now_ns() - before, 50'000'000);
  EXPECT_NE(status.message().find("rank 1"), std::string::npos) << status.message();
  EXPECT_EQ(all_reduce(0, &value, true).wait().code(), StatusCode::kTimeout);
}

TEST_F(TwoDrivers, RemovingAGroupEndsItsWaits) {
  int64_t value = 1;
  Work work = all_reduce(0, &value, false);
  std::thread waiter([&] { EXPECT_EQ(work.wait().code(), StatusCode::kAborted); });
  (void)driver_[0]->remove_group(std::exchange(group_[0], nullptr));
  waiter.join();
}

// A generous limit stands for "never".
constexpr int64_t kLongMs = 30'000;

std::future<Status> waiting_for(Work work) {
  return std::async(std::launch::async, [work = std::move(work)]() mutable { return work.wait(); });
}

bool is_over(const std::future<Status>& wait) {
  return wait.wait_for(std::chrono::milliseconds(kLongMs)) == std::future_status::ready;
}

TEST_F(TwoDriversThatSleep, APeerThatDiesEndsTheWaitOfASleeper) {
  int64_t value = 1;
  Work work = all_reduce(0, &value, true);
  std::thread waiter([&] {
    EXPECT_EQ(work.wait_for(kLongMs).code(), StatusCode::kPeerLost) << work.status().message();
  });
  inbox_[0]->until_asleep();
  {
    std::lock_guard<std::mutex> lock(inbox_[0]->mutex);
    inbox_[0]->lost = true;
  }
  driver_[0]->poller()->ring();  // as the end of its socket does
  waiter.join();
}

TEST_F(TwoDriversThatSleep, AWaitEndsBeforeThatOfAnEarlierOperation) {
  int64_t value[2][2] = {{1, 2}, {10, 20}};
  inbox_[0]->withheld = 0;
  Work earlier = all_reduce(0, &value[0][0], true);
  Work later = all_reduce(0, &value[0][1], true);
  std::thread sleeper([&] { EXPECT_TRUE(earlier.wait().ok()); });
  const int slept = inbox_[0]->until_asleep();
  std::future<Status> parked = waiting_for(later);
  inbox_[0]->until_asleep(slept);  // the other has looked, and let the first sleep on
  for (int64_t& each : value[1]) EXPECT_TRUE(all_reduce(1, &each, true).wait().ok());
  EXPECT_TRUE(is_over(parked));
  EXPECT_FALSE(earlier.done());
  {
    std::lock_guard<std::mutex> lock(inbox_[0]->mutex);
    inbox_[0]->withheld.reset();
  }
  driver_[0]->poller()->ring();
  sleeper.join();
  EXPECT_TRUE(parked.get().ok());
  EXPECT_EQ(value[0][0], 11);
  EXPECT_EQ(value[0][1], 22);
}

TEST_F(TwoDriversThatSleep, ADeadlineIsKeptWhileAnotherThreadSleepsLonger) {
  int64_t value[2] = {1, 2};
  Work patient = all_reduce(0, &value[0], true);
  std::thread sleeper([&] { EXPECT_EQ(patient.wait_for(kLongMs).code(), StatusCode::kTimeout); });
  inbox_[0]->until_asleep();
  const Status status = all_reduce(0, &value[1], true, 50).wait_for(kLongMs);
  EXPECT_NE(status.message().find("within 50 ms"), std::string::npos) << status.message();
  sleeper.join();
}

TEST_F(TwoDriversThatSleep, AGroupThatComesWhileAThreadSleepsIsRungToo) {
  int64_t value[2] = {1, 2};
  Work work = all_reduce(0, &value[0], true);
  std::thread sleeper([&] { EXPECT_TRUE(work.wait().ok()); });
  inbox_[0]->until_asleep();
  auto inbox = std::make_shared<Inbox>();
  GroupConfig config;
  config.links.resize(1);
  Group* group = driver_[0]->add_group(std::move(config), hooks_of(inbox));
  inbox->until_asleep();
  EXPECT_TRUE(all_reduce(1, &value[1], true).wait().ok());
  sleeper.join();
  (void)driver_[0]->remove_group(group);
}

// Rank 0 of three; the other two are only what the test says that they sent.
class OneOfThree : public testing::Test {
 protected:
  OneOfThree() : driver_(Driver::create({.buffer_size = 1 << 20, .spin_us = 0}).value()) {
    inbox_->poller = driver_->poller();
    goodbye_.type = wire::MessageType::kGoodbye;
    GroupConfig config;
    config.links.resize(3);
    config.links[1] = std::make_unique<QueueLink>(inbox_, std::make_shared<Inbox>());
    config.links[2] =
        std::make_unique<QueueLink>(std::make_shared<Inbox>(), std::make_shared<Inbox>());
    group_ = driver_->add_group(std::move(config), {.set_sleeping = [inbox = inbox_](bool now) {
                                  inbox->set_sleeping(now);
                                }});
  }

  Work call(plan::Operation operation, plan::Algorithm algorithm, int root, int64_t* value) {
    Request request;
    request.operation = plan::name_of(operation);
    request.plan = std::make_shared<const plan::Plan>(
        plan::make(operation, algorithm, plan::Layout::one_host(3), 0, root));
    request.input = request.output = reinterpret_cast<std::byte*>(value);
    request.count = 1;
    request.dtype = DataType::kInt64;
    return Work(driver_->submit(group_, {&request, 1}, now_ns(), true));
  }
  Work broadcast(int root, int64_t* value) {
    return call(plan::Operation::kBroadcast, plan::Algorithm::kDirect, root, value);
  }

  std::shared_ptr<Driver> driver_;
  std::shared_ptr<Inbox> inbox_ = std::make_shared<Inbox>();  // what comes from rank 1
  wire::Header goodbye_;
  Group* group_ = nullptr;
};

TEST_F(OneOfThree, ACallThatNeedsAPeerThatIsGoneEndsTheWaitsOfOthers) {
  inbox_->put(goodbye_, {});
  int64_t value = 0;
  Work without = broadcast(2, &value);
  std::future<Status> sleeper = waiting_for(without);
  inbox_->until_asleep();
  Work with = call(plan::Operation::kAllReduce, plan::Algorithm::kOneShot, 0, &value);
  const Status lost = with.wait();
  EXPECT_EQ(lost.code(), StatusCode::kPeerLost);
  EXPECT_NE(lost.message().find("rank 1"), std::string::npos) << lost.message();
  EXPECT_TRUE(is_over(sleeper));
  (void)driver_->remove_group(group_);
  EXPECT_EQ(sleeper.get().code(), StatusCode::kPeerLost);
}

TEST_F(OneOfThree, WhatHasComeIsUsedBeforeALaterOperationEndsTheGroup) {
  int64_t value[2] = {0, 0};
  Work first = broadcast(1, &value[0]);
  Work second = broadcast(1, &value[1]);
  const int64_t sent = 42;
  wire::Header data;
  data.payload_bytes = sizeof(sent);
  data.message_bytes = sizeof(sent);
  const auto* bytes = reinterpret_cast<const std::byte*>(&sent);
  {
    std::lock_guard<std::mutex> lock(inbox_->mutex);  // both are there at the first look
    inbox_->messages.push_back({data, {bytes, bytes + sizeof(sent)}});
    inbox_->messages.push_back({goodbye_, {}});
  }
  driver_->poller()->ring();
  EXPECT_TRUE(first.wait().ok()) << first.status().message();
  EXPECT_EQ(value[0], 42);
  EXPECT_EQ(second.wait().code(), StatusCode::kPeerLost);
  (void)driver_->remove_group(group_);
}

TEST_F(TwoDrivers, AWorkOutlivesItsDriver) {
  int64_t value[2] = {1, 2};
  Work work = all_reduce(0, &value[0], false);
  EXPECT_TRUE(all_reduce(1, &value[1], true).wait().ok());
  EXPECT_TRUE(work.wait().ok());
  for (int rank = 0; rank < 2; ++rank) {
    (void)driver_[rank]->remove_group(std::exchange(group_[rank], nullptr));
    driver_[rank].reset();
  }
  EXPECT_TRUE(work.done());
  EXPECT_TRUE(Work(work).wait().ok());
}

}  // namespace
}  // namespace ciuic::engine
