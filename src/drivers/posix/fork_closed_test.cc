// SPDX-License-Identifier: Apache-2.0
// fork_closed_test.cc: what a forked child has of sockets: nothing.

#include "drivers/posix/fork_closed.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <optional>
#include <thread>
#include <vector>

#include "drivers/posix/fd_passing.h"
#include "drivers/posix/socket.h"

namespace ciuic::posix {
namespace {

constexpr TimeNs kMinute = 60'000'000'000;

// The exit code of a forked child, which is what `check` returns there.
template <typename Check>
int in_child(Check check) {
  const pid_t child = fork();
  if (child == 0) _exit(check());
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int count_sockets() {
  int sockets = 0;
  for (int fd = 0; fd < 1024; ++fd) {
    struct stat facts{};
    if (fstat(fd, &facts) == 0 && S_ISSOCK(facts.st_mode)) ++sockets;
  }
  return sockets;
}

struct Connection {
  UniqueFd listener, near, far;
};

Connection connect_both() {
  Connection made;
  made.listener = std::move(*listen_at({"127.0.0.1", 0}));
  made.near = std::move(*connect_to(*local_address(made.listener.get()), now_ns() + kMinute));
  EXPECT_TRUE(*wait_for(made.listener.get(), POLLIN, now_ns() + kMinute));
  made.far = std::move(*accept_from(made.listener.get()));
  return made;
}

TEST(ForkClosed, AChildHasNoSockets) {
  const int before = count_sockets();
  const Connection tcp = connect_both();
  const std::string name = "ciuic-fork-" + std::to_string(getpid());
  const UniqueFd listener = std::move(*listen_abstract(name));
  const UniqueFd near = std::move(*connect_abstract(name));
  const UniqueFd far = std::move(*accept_from(listener.get()));
  EXPECT_EQ(count_sockets(), before + 6);
  EXPECT_EQ(in_child(count_sockets), before);
  EXPECT_EQ(count_sockets(), before + 6);
}

// What is at stake: the peer is told of the end while a child lives.
TEST(ForkClosed, AChildDoesNotHoldAConnectionOpen) {
  Connection tcp = connect_both();
  int pipe_ends[2];
  ASSERT_EQ(pipe2(pipe_ends, O_CLOEXEC), 0);
  UniqueFd read_end(pipe_ends[0]);
  UniqueFd write_end(pipe_ends[1]);
  const pid_t child = fork();
  if (child == 0) {
    write_end.reset();
    char byte = 0;
    _exit(static_cast<int>(::read(read_end.get(), &byte, 1)));  // until the parent lets go
  }
  tcp.far.reset();
  ASSERT_TRUE(*wait_for(tcp.near.get(), POLLIN, now_ns() + kMinute));
  char byte = 0;
  EXPECT_EQ(receive_some(tcp.near.get(), &byte, 1).status().code(), StatusCode::kPeerLost);
  EXPECT_EQ(waitpid(child, nullptr, WNOHANG), 0);  // it lives
  write_end.reset();
  EXPECT_EQ(waitpid(child, nullptr, 0), child);
}

// The child's own descriptor has the number that was the parent's.
TEST(ForkClosed, WhatAChildOpensIsItsOwn) {
  std::optional<UniqueFd> parents(std::move(*listen_at({"127.0.0.1", 0})));
  const int number = parents->get();
  EXPECT_EQ(in_child([&] {
              const UniqueFd lowest(::open("/dev/null", O_RDONLY | O_CLOEXEC));
              const UniqueFd mine =
                  make_fork_closed([&] { return fcntl(lowest.get(), F_DUPFD_CLOEXEC, number); });
              if (lowest.get() != number && mine.get() != number) return 1;
              parents.reset();
              if (fcntl(number, F_GETFD) < 0) return 2;
              UniqueFd moved = std::move(*listen_at({"127.0.0.1", 0}));
              return in_child(count_sockets) == 0 ? 0 : 3;  // its children have none of its own
            }),
            0);
  EXPECT_GE(fcntl(number, F_GETFD), 0);
}

TEST(ForkClosed, TheMarkGoesWithTheDescriptor) {
  UniqueFd first = std::move(*listen_at({"127.0.0.1", 0}));
  const int number = first.get();
  UniqueFd second(std::move(first));
  first = std::move(second);
  const auto is_open = [number] { return fcntl(number, F_GETFD) < 0 ? 0 : 1; };
  EXPECT_EQ(in_child(is_open), 0);
  // Closed, and the number taken by something that a child shall keep.
  first.reset();
  const UniqueFd file(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const UniqueFd same(fcntl(file.get(), F_DUPFD_CLOEXEC, number));
  EXPECT_TRUE(file.get() == number || same.get() == number);
  EXPECT_EQ(in_child(is_open), 1);
}

TEST(ForkClosed, NoForkComesBetween) {
  const int before = count_sockets();
  std::atomic<bool> over{false};
  std::vector<std::thread> makers;
  for (int i = 0; i < 3; ++i) {
    makers.emplace_back([&] {
      while (!over.load()) listen_at({"127.0.0.1", 0}).value().reset();
    });
  }
  int with_sockets = 0;
  for (int i = 0; i < 60; ++i) with_sockets += in_child(count_sockets) != before ? 1 : 0;
  over.store(true);
  for (std::thread& maker : makers) maker.join();
  EXPECT_EQ(with_sockets, 0);
}

}  // namespace
}  // namespace ciuic::posix
