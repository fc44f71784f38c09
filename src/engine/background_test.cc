// SPDX-License-Identifier: Apache-2.0
// background_test.cc: the driver's background thread, which sees to what no caller waits for.

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <deque>
#include <filesystem>
#include <fstream>
#include <future>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "ciuic/work.h"
#include "engine/two_drivers.h"
#include "plan/registry.h"

namespace ciuic::engine {
namespace {

// With this, whatever wakes now and then would do so all the time.
class TwoDriversOfNoGrace : public TwoDrivers {
  int64_t grace_us() const override { return 1; }
};

TEST_F(TwoDriversOfNoGrace, BackgroundThreadsEndWhatNobodyWaitsFor) {
  int64_t value[2] = {3, 4};
  std::promise<Status> ended[2];
  for (int rank = 0; rank < 2; ++rank) {
    all_reduce(rank, &value[rank], false).on_done([&ended, rank](const Status& status) {
      ended[rank].set_value(status);
    });
  }
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_TRUE(ended[rank].get_future().get().ok());
    EXPECT_EQ(value[rank], 7);
  }
}

// With this, the background thread does nothing unless it is asked.
class TwoDriversOfMuchGrace : public TwoDrivers {
  int64_t grace_us() const override { return 3'600'000'000; }
};

TEST_F(TwoDriversOfMuchGrace, WhatIsWaitedForSoonIsTheCallersAlone) {
  const auto run = [&](int rank) {
    for (int i = 0; i < 300; ++i) {
      int64_t value[2] = {i + rank, i};
      Work first = all_reduce(rank, &value[0], false);
      Work second = all_reduce(rank, &value[1], false);
      ASSERT_TRUE(first.wait().ok());
      ASSERT_TRUE(second.wait().ok());
      ASSERT_EQ(value[0], 2 * i + 1);
      ASSERT_EQ(value[1], 2 * i);
    }
  };
  std::thread other(run, 1);
  run(0);
  other.join();
}

TEST_F(TwoDriversOfMuchGrace, BackgroundThreadsEndWhatAFunctionWaitsFor) {
  int64_t value[2] = {3, 4};
  std::promise<Status> ended[2];
  Work work[2];
  for (int rank = 0; rank < 2; ++rank) {
    work[rank] = all_reduce(rank, &value[rank], false);
    work[rank].on_done([&ended, rank](const Status& status) { ended[rank].set_value(status); });
  }
  for (auto& promise : ended) EXPECT_TRUE(promise.get_future().get().ok());
}

// Rank 1 ends only when rank 0, whose caller does something else, has answered what it sent.
TEST_F(TwoDrivers, APeerNeedNotWaitForACallerThatDoesNot) {
  use(plan::Algorithm::kRing);
  int64_t value[2] = {3, 4};
  Work unheeded = all_reduce(0, &value[0], false);
  EXPECT_TRUE(all_reduce(1, &value[1], true).wait().ok());
  EXPECT_EQ(value[1], 7);
  EXPECT_TRUE(unheeded.wait().ok());
}

TEST_F(TwoDrivers, LaterOperationsDoNotPutTheBackgroundThreadOff) {
  std::deque<int64_t> values;
  const auto sleeps = [&] {
    std::lock_guard<std::mutex> lock(inbox_[0]->mutex);
    return inbox_[0]->slept > 0;
  };
  while (!sleeps()) all_reduce(0, &values.emplace_back(1), false);
  (void)driver_[0]->remove_group(std::exchange(group_[0], nullptr));
}

// How often the threads of this process, but this one, have slept and were woken.
int64_t wakes_of_other_threads() {
  int64_t wakes = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    if (task.path().filename() == std::to_string(gettid())) continue;
    std::ifstream status(task.path() / "status");
    for (std::string line; std::getline(status, line);) {
      int64_t count = 0;
      if (std::sscanf(line.c_str(), "voluntary_ctxt_switches: %ld", &count) == 1) wakes += count;
    }
  }
  return wakes;
}

TEST_F(TwoDriversOfNoGrace, BackgroundThreadsSleepWhileNothingIsUnderWay) {
  int64_t value[2] = {1, 2};
  for (int i = 0; i < 10; ++i) {
    Work work = all_reduce(0, &value[0], false);
    EXPECT_TRUE(all_reduce(1, &value[1], false).wait().ok());
    EXPECT_TRUE(work.wait().ok());
  }
  const TimeNs begin = now_ns();
  const int64_t before = wakes_of_other_threads();
  int64_t looked = before;
  for (int i = 0; i < 200; ++i) looked = wakes_of_other_threads();
  // The last alarm of each, if it was still to ring; and a sanitizer's own thread, every 100 ms.
  EXPECT_LE(looked - before, 4 + (now_ns() - begin) / 50'000'000);
}

}  // namespace
}  // namespace ciuic::engine
