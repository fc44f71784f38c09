// SPDX-License-Identifier: Apache-2.0
// poller_test.cc: events reach their word, the doorbell wakes, removal is final.

#include "drivers/posix/poller.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>

#include "drivers/posix/unique_fd.h"

namespace ciuic::posix {
namespace {

struct Pair {
  Pair() {
    int fds[2] = {-1, -1};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
    a.reset(fds[0]);
    b.reset(fds[1]);
  }
  UniqueFd a, b;
};

TEST(Poller, ReportsReadableOnceAnEdge) {
  auto poller = std::move(*Poller::create());
  Pair pair;
  std::atomic<uint32_t> ready{0};
  ASSERT_TRUE(poller->add(pair.a.get(), &ready).ok());
  EXPECT_TRUE(poller->poll(0));
  EXPECT_EQ(ready.exchange(0), kWritable);
  EXPECT_FALSE(poller->poll(0));
  ASSERT_EQ(::write(pair.b.get(), "x", 1), 1);
  EXPECT_TRUE(poller->poll(-1));
  EXPECT_NE(ready.exchange(0) & kReadable, 0u);
  EXPECT_FALSE(poller->poll(0));  // the byte is still there, but no new edge
  pair.b.reset();
  EXPECT_TRUE(poller->poll(-1));
  EXPECT_NE(ready.load() & kHangUp, 0u);
}

TEST(Poller, DoorbellWakesASleeper) {
  auto poller = std::move(*Poller::create());
  std::thread ringer([&] { poller->ring(); });
  EXPECT_TRUE(poller->poll(-1));
  ringer.join();
  EXPECT_FALSE(poller->poll(0));  // the bell was taken
  const uint64_t one = 1;
  ASSERT_EQ(::write(poller->doorbell_fd(), &one, sizeof one), static_cast<ssize_t>(sizeof one));
  EXPECT_TRUE(poller->poll(-1));
}

TEST(Poller, SleepsNoLongerThanAsked) {
  auto poller = std::move(*Poller::create());
  const TimeNs before = now_ns();
  EXPECT_FALSE(poller->poll(5));
  EXPECT_GE(now_ns() - before, 4'000'000);
}

TEST(Poller, RemovedSocketIsSilentAndMayComeBack) {
  auto poller = std::move(*Poller::create());
  Pair pair;
  std::atomic<uint32_t> ready{0};
  ASSERT_TRUE(poller->add(pair.a.get(), &ready).ok());
  EXPECT_FALSE(poller->add(pair.a.get(), &ready).ok());  // twice at once is refused
  poller->remove(pair.a.get());
  ASSERT_EQ(::write(pair.b.get(), "x", 1), 1);
  EXPECT_FALSE(poller->poll(0));
  EXPECT_EQ(ready.load(), 0u);
  ASSERT_TRUE(poller->add(pair.a.get(), &ready).ok());
  EXPECT_TRUE(poller->poll(0));
  EXPECT_NE(ready.load() & kReadable, 0u);
}

TEST(Poller, AddAndRemoveWhileAnotherThreadSleeps) {
  auto poller = std::move(*Poller::create());
  std::atomic<bool> stop{false};
  std::thread sleeper([&] {
    while (!stop.load()) poller->poll(-1);
  });
  for (int i = 0; i < 200; ++i) {
    Pair pair;
    auto ready = std::make_unique<std::atomic<uint32_t>>(0);
    ASSERT_TRUE(poller->add(pair.a.get(), ready.get()).ok());
    ASSERT_EQ(::write(pair.b.get(), "x", 1), 1);
    poller->remove(pair.a.get());
    ready.reset();  // a write after this would be a use after free for the sanitizers
  }
  stop.store(true);
  poller->ring();
  sleeper.join();
}

}  // namespace
}  // namespace ciuic::posix
