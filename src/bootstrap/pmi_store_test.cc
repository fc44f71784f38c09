// SPDX-License-Identifier: Apache-2.0
// pmi_store_test.cc: the join over PMI-1, with a launcher of a few lines in place of Hydra.

#include "bootstrap/pmi_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <map>

#include "bootstrap/exchange_fixture.h"
#include "drivers/posix/socket.h"

namespace ciuic::bootstrap {
namespace {

using testing::run_threads;

TimeNs soon() { return deadline_after(now_ns(), 20'000); }

// Answers the lines of `size` processes on a thread of its own, until all have hung up.
class FakeLauncher {
 public:
  explicit FakeLauncher(int size, int value_bytes = 1024) : value_bytes_(value_bytes) {
    for (int i = 0; i < size; ++i) {
      int pair[2] = {-1, -1};
      EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
      ours_.emplace_back(pair[0]);
      theirs_.emplace_back(pair[1]);
    }
    inputs_.resize(static_cast<size_t>(size));
    thread_ = std::thread([this] { serve(); });
  }
  ~FakeLauncher() {
    theirs_.clear();
    thread_.join();
  }
  int fd(int rank) const { return theirs_[static_cast<size_t>(rank)].get(); }
  int finalized() const { return finalized_; }

 private:
  void serve() {
    size_t open = ours_.size();
    while (open > 0) {
      std::vector<pollfd> fds;
      for (const posix::UniqueFd& fd : ours_) fds.push_back({fd.get(), POLLIN, 0});
      ::poll(fds.data(), fds.size(), -1);
      for (size_t i = 0; i < fds.size(); ++i) {
        if (fds[i].revents == 0) continue;
        char buffer[4096];
        const ssize_t count = ::read(fds[i].fd, buffer, sizeof buffer);
        if (count <= 0) {
          ours_[i].reset();
          --open;
          continue;
        }
        inputs_[i].append(buffer, static_cast<size_t>(count));
        take_lines(i);
      }
    }
  }

  void take_lines(size_t rank) {
    for (size_t end; (end = inputs_[rank].find('\n')) != std::string::npos;) {
      const std::string line = inputs_[rank].substr(0, end);
      inputs_[rank].erase(0, end + 1);
      char kvs[64], key[64], value[4096];
      if (line.starts_with("cmd=init")) {
        answer(rank, "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1");
      } else if (line == "cmd=get_maxes") {
        answer(rank, fmt::format("cmd=maxes rc=0 kvsname_max=64 keylen_max=64 vallen_max={}",
                                 value_bytes_));
      } else if (line == "cmd=get_my_kvsname") {
        answer(rank, "cmd=my_kvsname rc=0 kvsname=kvs_1");
      } else if (std::sscanf(line.c_str(), "cmd=put kvsname=%63s key=%63s value=%4095s", kvs, key,
                             value) == 3) {
        const bool fits = std::string(value).size() < static_cast<size_t>(value_bytes_);
        if (fits) pending_[key] = value;
        answer(rank, fits ? "cmd=put_result rc=0" : "cmd=put_result rc=-1");
      } else if (std::sscanf(line.c_str(), "cmd=get kvsname=%63s key=%63s", kvs, key) == 2) {
        const auto found = values_.find(key);
        answer(rank, found == values_.end() ? "cmd=get_result rc=1"
                                            : "cmd=get_result rc=0 value=" + found->second);
      } else if (line == "cmd=barrier_in") {
        if (++at_barrier_ < static_cast<int>(ours_.size())) continue;
        at_barrier_ = 0;
        values_.insert(pending_.begin(), pending_.end());  // visible from here on, not before
        for (size_t i = 0; i < ours_.size(); ++i) answer(i, "cmd=barrier_out");
      } else if (line == "cmd=finalize") {
        ++finalized_;
        answer(rank, "cmd=finalize_ack");
      } else {
        answer(rank, "cmd=what rc=-1");
      }
    }
  }

  void answer(size_t rank, const std::string& line) {
    const std::string text = line + "\n";
    if (!ours_[rank]) return;
    [[maybe_unused]] const ssize_t put =
        ::send(ours_[rank].get(), text.data(), text.size(), MSG_NOSIGNAL);
  }

  int value_bytes_;
  std::vector<posix::UniqueFd> ours_, theirs_;
  std::vector<std::string> inputs_;
  std::map<std::string, std::string> pending_, values_;
  int at_barrier_ = 0;
  std::atomic<int> finalized_{0};
  std::thread thread_;
};

TEST(Pmi, BroadcastsInPieces) {
  for (const int value_bytes : {32, 64, 1024}) {
    FakeLauncher launcher(3, value_bytes);
    std::string long_value;
    for (int i = 0; i < 1500; ++i) long_value.push_back(static_cast<char>(i * 7));
    run_threads(3, [&](int rank) {
      auto session = PmiSession::open(launcher.fd(rank), soon());
      ASSERT_TRUE(session.ok()) << session.status().message();
      for (const std::string& value : {std::string("first"), std::string(), long_value}) {
        Result<std::string> got = (*session)->broadcast(rank == 0 ? &value : nullptr, soon());
        ASSERT_TRUE(got.ok()) << got.status().message();
        EXPECT_EQ(*got, value);
      }
      EXPECT_EQ((*session)->count(), 3u);
    });
    EXPECT_EQ(launcher.finalized(), 3);
  }
}

// All that a launcher says, beforehand.
Result<std::string> broadcast_from(const std::string& answers) {
  int pair[2] = {-1, -1};
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
  const posix::UniqueFd ours(pair[0]);
  const posix::UniqueFd theirs(pair[1]);
  std::thread speaker([&] {
    [[maybe_unused]] const Status sent =
        posix::send_all(theirs.get(), answers.data(), answers.size(), soon());
    ::shutdown(theirs.get(), SHUT_WR);
  });
  auto session = PmiSession::open(ours.get(), soon());
  Result<std::string> got =
      session.ok() ? (*session)->broadcast(nullptr, soon()) : session.status();
  ::shutdown(ours.get(), SHUT_RD);
  speaker.join();
  return got;
}

constexpr const char* kBegin =
    "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n"
    "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024\ncmd=my_kvsname kvsname=k\n"
    "cmd=barrier_out\n";

TEST(Pmi, AValueWithoutEndIsRefused) {
  std::string answers = kBegin + std::string("cmd=get_result rc=0 value=4096\n");
  for (int i = 0; i < 4096; ++i) {
    answers += "cmd=get_result rc=0 value=" + std::string(1000, 'a') + "\n";
  }
  const Result<std::string> got = broadcast_from(answers);
  EXPECT_EQ(got.status().code(), StatusCode::kInvalidArgument) << got.status().message();
}

TEST(Pmi, WhatALauncherSaysIsQuotedAsText) {
  const Result<std::string> got = broadcast_from(kBegin + std::string("cmd=\x1b[2J\xff\n"));
  EXPECT_EQ(got.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(got.status().message(), ::testing::HasSubstr("\"cmd=?[2J?\""));
}

TEST(Pmi, RanksJoinTwice) {
  FakeLauncher launcher(4);
  run_threads(4, [&](int rank) {
    auto session = PmiSession::open(launcher.fd(rank), soon());
    ASSERT_TRUE(session.ok());
    PmiStore store(*session);
    for (uint32_t epoch = 1; epoch <= 2; ++epoch) {
      auto joined =
          exchange_cards(&store, testing::card_for(rank, 4), testing::options_for(20'000));
      ASSERT_TRUE(joined.ok()) << joined.status().message();
      EXPECT_EQ((*joined)->roll().epoch, epoch);
      EXPECT_TRUE((*joined)->gather(std::string("x"), soon()).ok());
    }
  });
}

TEST(Pmi, WhatRankZeroCannotDoIsSaidToAll) {
  FakeLauncher launcher(2);
  run_threads(2, [&](int rank) {
    auto session = PmiSession::open(launcher.fd(rank), soon());
    ASSERT_TRUE(session.ok());
    PmiStore store(*session);
    Card card = testing::card_for(rank, 2);
    if (rank == 0) card.loopback = {{"192.0.2.77", 0}};  // not an address of this host
    auto joined = exchange_cards(&store, card, testing::options_for(20'000));
    EXPECT_EQ(joined.status().code(), StatusCode::kResource) << joined.status().message();
    EXPECT_THAT(joined.status().message(), ::testing::HasSubstr("192.0.2.77"));
  });
}

TEST(Pmi, MissingRankIsATimeout) {
  FakeLauncher launcher(2);
  auto session = PmiSession::open(launcher.fd(0), soon());
  ASSERT_TRUE(session.ok());
  const std::string value = "value";
  Result<std::string> got = (*session)->broadcast(&value, deadline_after(now_ns(), 100));
  EXPECT_EQ(got.status().code(), StatusCode::kTimeout);
  EXPECT_THAT(got.status().message(), ::testing::HasSubstr("not all ranks"));
  EXPECT_FALSE((*session)->broadcast(&value, soon()).ok());
}

TEST(Pmi, LauncherThatIsNone) {
  EXPECT_FALSE(PmiSession::open(-1, soon()).ok());
  int pair[2] = {-1, -1};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
  posix::UniqueFd ours(pair[0]);
  posix::UniqueFd theirs(pair[1]);
  ASSERT_EQ(::write(ours.get(), "hello there\n", 12), 12);
  EXPECT_EQ(PmiSession::open(theirs.get(), soon()).status().code(), StatusCode::kInvalidArgument);
  ours.reset();
  EXPECT_FALSE(PmiSession::open(theirs.get(), soon()).ok());
}

TEST(Pmi, StoreServesTheJoinAlone) {
  PmiStore store(nullptr);
  EXPECT_EQ(store.set("k", "v").code(), StatusCode::kUnsupported);
  EXPECT_EQ(store.get("k", 1).status().code(), StatusCode::kUnsupported);
  EXPECT_EQ(store.add("k", 1).status().code(), StatusCode::kUnsupported);
}

}  // namespace
}  // namespace ciuic::bootstrap
