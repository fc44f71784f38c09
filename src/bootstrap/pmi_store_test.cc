// SPDX-License-Identifier: Apache-2.0
// pmi_store_test.cc: the join over PMI, with a launcher of a few lines for Hydra's and Slurm's.

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

// Answers `size` processes on a thread of its own, until all have hung up. Speaks one version.
class FakeLauncher {
 public:
  explicit FakeLauncher(int size, int value_bytes = 1024, int version = 1)
      : value_bytes_(value_bytes), version_(version) {
    for (int i = 0; i < size; ++i) {
      int pair[2] = {-1, -1};
      EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
      ours_.emplace_back(pair[0]);
      theirs_.emplace_back(pair[1]);
    }
    inputs_.resize(static_cast<size_t>(size));
    begun_.resize(static_cast<size_t>(size));
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
        take_requests(i);
      }
    }
  }

  void take_requests(size_t rank) {
    std::string& input = inputs_[rank];
    while (!begun_[rank] || version_ == 1) {
      const size_t end = input.find('\n');
      if (end == std::string::npos) return;
      const std::string line = input.substr(0, end);
      input.erase(0, end + 1);
      if (!line.starts_with("cmd=init")) {
        answer_1(rank, line);
        continue;
      }
      begun_[rank] = line == fmt::format("cmd=init pmi_version={} pmi_subversion={}", version_,
                                         version_ == 1 ? 1 : 0);
      answer(rank, fmt::format("cmd=response_to_init rc={} pmi_version={} pmi_subversion=0\n",
                               begun_[rank] ? 0 : -1, version_));
    }
    while (input.size() >= 6 && input.size() >= 6 + std::stoul(input)) {
      const std::string text = input.substr(6, std::stoul(input));
      input.erase(0, 6 + text.size());
      answer_2(rank, text);
    }
  }

  void answer_1(size_t rank, const std::string& line) {
    char kvs[64], key[64], value[4096];
    if (line == "cmd=get_maxes") {
      answer(rank, fmt::format("cmd=maxes rc=0 kvsname_max=64 keylen_max=64 vallen_max={}\n",
                               value_bytes_));
    } else if (line == "cmd=get_my_kvsname") {
      answer(rank, "cmd=my_kvsname rc=0 kvsname=kvs_1\n");
    } else if (std::sscanf(line.c_str(), "cmd=put kvsname=%63s key=%63s value=%4095s", kvs, key,
                           value) == 3) {
      answer(rank, put(key, value) ? "cmd=put_result rc=0\n" : "cmd=put_result rc=-1\n");
    } else if (std::sscanf(line.c_str(), "cmd=get kvsname=%63s key=%63s", kvs, key) == 2) {
      const auto found = values_.find(key);
      answer(rank, found == values_.end() ? "cmd=get_result rc=1\n"
                                          : "cmd=get_result rc=0 value=" + found->second + "\n");
    } else if (line == "cmd=barrier_in") {
      fence("cmd=barrier_out\n");
    } else if (line == "cmd=finalize") {
      ++finalized_;
      answer(rank, "cmd=finalize_ack\n");
    } else {
      answer(rank, "cmd=what rc=-1\n");
    }
  }

  void answer_2(size_t rank, const std::string& text) {
    char key[64], value[4096];
    if (text == fmt::format("cmd=fullinit;pmijobid=7.0;pmirank={};threaded=FALSE;", rank)) {
      answer(rank, counted("cmd=fullinit-response;rc=0;pmi-version=2;pmi-subversion=0;rank=0;"));
    } else if (std::sscanf(text.c_str(), "cmd=kvs-put;key=%63[^;];value=%4095[^;];", key, value) ==
               2) {
      answer(rank, counted(put(key, value) ? "cmd=kvs-put-response;rc=0;"
                                           : "cmd=kvs-put-response;rc=3;errmsg=no room;"));
    } else if (std::sscanf(text.c_str(), "cmd=kvs-get;jobid=;srcid=-1;key=%63[^;];", key) == 1) {
      const auto found = values_.find(key);
      answer(rank,
             counted(found == values_.end()
                         ? "cmd=kvs-get-response;rc=0;found=FALSE;"
                         : "cmd=kvs-get-response;rc=0;found=TRUE;value=" + found->second + ";"));
    } else if (text == "cmd=kvs-fence;") {
      fence(counted("cmd=kvs-fence-response;rc=0;"));
    } else if (text == "cmd=finalize;") {
      ++finalized_;
      answer(rank, counted("cmd=finalize-response;rc=0;"));
    } else {
      answer(rank, counted("cmd=what-response;rc=1;"));
    }
  }

  static std::string counted(const std::string& text) {
    return fmt::format("{:6}{}", text.size(), text);
  }

  bool put(const std::string& key, const std::string& value) {
    const bool fits = value.size() < static_cast<size_t>(value_bytes_);
    if (fits) pending_[key] = value;
    return fits;
  }

  void fence(const std::string& reply) {
    if (++at_barrier_ < static_cast<int>(ours_.size())) return;
    at_barrier_ = 0;
    values_.insert(pending_.begin(), pending_.end());  // visible from here on, not before
    for (size_t i = 0; i < ours_.size(); ++i) answer(i, reply);
  }

  void answer(size_t rank, const std::string& text) {
    if (!ours_[rank]) return;
    [[maybe_unused]] const ssize_t put =
        ::send(ours_[rank].get(), text.data(), text.size(), MSG_NOSIGNAL);
  }

  int value_bytes_;
  int version_;
  std::vector<posix::UniqueFd> ours_, theirs_;
  std::vector<std::string> inputs_;
  std::vector<bool> begun_;
  std::map<std::string, std::string> pending_, values_;
  int at_barrier_ = 0;
  std::atomic<int> finalized_{0};
  std::thread thread_;
};

// Each launcher speaks one version, and processes may ask for the other one first.
TEST(Pmi, BroadcastsInPieces) {
  struct Case {
    int version, asked, value_bytes;
  };
  for (const auto& [version, asked, value_bytes] :
       {Case{1, 1, 32}, {1, 1, 64}, {1, 2, 1024}, {2, 2, 1024}, {2, 1, 1024}}) {
    FakeLauncher launcher(3, value_bytes, version);
    std::string long_value;
    for (int i = 0; i < 1500; ++i) long_value.push_back(static_cast<char>(i * 7));
    run_threads(3, [&, first = asked](int rank) {
      auto session = open_pmi({launcher.fd(rank), first, rank, "7.0"}, soon());
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

TEST(Pmi, AValueThatTheLauncherRefuses) {
  for (const int version : {1, 2}) {
    FakeLauncher launcher(1, 40, version);
    auto session = open_pmi({launcher.fd(0), version, 0, "7.0"}, soon());
    ASSERT_TRUE(session.ok());
    const std::string value(200, 'x');
    Result<std::string> got = (*session)->broadcast(&value, soon());
    if (version == 1) {
      EXPECT_TRUE(got.ok());  // it has said how much fits
    } else {
      EXPECT_EQ(got.status().code(), StatusCode::kResource);
      EXPECT_THAT(got.status().message(), ::testing::HasSubstr("refused kvs-put"));
      EXPECT_THAT(got.status().message(), ::testing::HasSubstr("no room"));
    }
  }
}

TEST(Pmi, AJobOfAnotherNameIsRefused) {
  FakeLauncher launcher(1, 1024, 2);
  const Status status = open_pmi({launcher.fd(0), 2, 0, "8.0"}, soon()).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status.message();
  FakeLauncher other(1, 1024, 2);
  EXPECT_THAT(open_pmi({other.fd(0), 2, 0, "7.0;cmd=abort"}, soon()).status().message(),
              ::testing::HasSubstr("no name of a job"));
}

TEST(Pmi, NeitherVersion) {
  FakeLauncher launcher(1, 1024, 3);
  EXPECT_EQ(open_pmi({launcher.fd(0), 1, 0, ""}, soon()).status().code(), StatusCode::kMismatch);
}

// All that a launcher says, beforehand.
Result<std::string> broadcast_from(const std::string& answers, int version = 1) {
  int pair[2] = {-1, -1};
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
  const posix::UniqueFd ours(pair[0]);
  const posix::UniqueFd theirs(pair[1]);
  std::thread speaker([&] {
    [[maybe_unused]] const Status sent =
        posix::send_all(theirs.get(), answers.data(), answers.size(), soon());
    ::shutdown(theirs.get(), SHUT_WR);
  });
  auto session = open_pmi({ours.get(), version, 0, ""}, soon());
  Result<std::string> got =
      session.ok() ? (*session)->broadcast(nullptr, soon()) : session.status();
  ::shutdown(ours.get(), SHUT_RDWR);  // the speaker need not say all
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

// Of PMI-2, with what answers a get; lengths are right but where `length` is given.
std::string begin_2(const std::string& answer, const char* length = nullptr) {
  std::string all = "cmd=response_to_init rc=0 pmi_version=2 pmi_subversion=0\n";
  for (const std::string& text : {std::string("cmd=fullinit-response;rc=0;"),
                                  std::string("cmd=kvs-fence-response;rc=0;"), answer}) {
    all += fmt::format("{:6}", text.size()) + text;
  }
  if (length != nullptr) all.replace(all.size() - answer.size() - 6, 6, length);
  return all;
}

TEST(Pmi, AnswersOfVersionTwoThatAreNone) {
  struct Case {
    const char* what;
    std::string answers;
    StatusCode code;
    const char* says;
  };
  const std::string get = "cmd=kvs-get-response;rc=0;found=TRUE;value=";
  const Case cases[] = {
      {"nothing there", begin_2("cmd=kvs-get-response;rc=0;found=FALSE;"), StatusCode::kPeerLost,
       "left no invitation"},
      {"no number", begin_2(get + "x;"), StatusCode::kInvalidArgument, "not ours"},
      {"too many", begin_2(get + "5000;"), StatusCode::kInvalidArgument, "not ours"},
      {"an empty piece", begin_2(get + "1;") + fmt::format("{:6}{};", get.size() + 1, get),
       StatusCode::kInvalidArgument, "not ours"},
      {"half a byte", begin_2(get + "1;") + fmt::format("{:6}{}abc;", get.size() + 4, get),
       StatusCode::kInvalidArgument, "not ours"},
      {"below zero", begin_2(get + "-1;"), StatusCode::kInvalidArgument, "not ours"},
      {"another answer", begin_2("cmd=kvs-put-response;rc=0;"), StatusCode::kInvalidArgument,
       "kvs-get-response was expected"},
      {"an error", begin_2("cmd=kvs-get-response;rc=14;errmsg=bad;"), StatusCode::kResource,
       "errmsg=bad"},
      {"no length", begin_2(get + "0;", "length"), StatusCode::kInvalidArgument, "\"length\""},
      {"a negative one", begin_2(get + "0;", "   -42"), StatusCode::kInvalidArgument, "\"   -42\""},
      {"a huge one", begin_2(get + "0;", "999999"), StatusCode::kInvalidArgument, "\"999999\""},
      {"cut off", begin_2(get + "0;", "    99"), StatusCode::kPeerLost, "the launcher is gone"},
      {"none", begin_2("", "      "), StatusCode::kInvalidArgument, "\"      \""},
      {"control characters", begin_2("cmd=\x1b[2J;"), StatusCode::kInvalidArgument, "cmd=?[2J"},
  };
  for (const Case& c : cases) {
    const Result<std::string> got = broadcast_from(c.answers, 2);
    EXPECT_EQ(got.status().code(), c.code) << c.what << ": " << got.status().message();
    EXPECT_THAT(got.status().message(), ::testing::HasSubstr(c.says)) << c.what;
  }
  EXPECT_EQ(*broadcast_from(begin_2(get + "0;"), 2), "");
}

TEST(Pmi, WhatALauncherSaysIsQuotedAsText) {
  const Result<std::string> got = broadcast_from(kBegin + std::string("cmd=\x1b[2J\xff\n"));
  EXPECT_EQ(got.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(got.status().message(), ::testing::HasSubstr("\"cmd=?[2J?\""));
}

TEST(Pmi, RanksJoinTwice) {
  FakeLauncher launcher(4);
  run_threads(4, [&](int rank) {
    auto session = open_pmi({.fd = launcher.fd(rank), .job = ""}, soon());
    ASSERT_TRUE(session.ok());
    LauncherStore store(*session);
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
    auto session = open_pmi({.fd = launcher.fd(rank), .job = ""}, soon());
    ASSERT_TRUE(session.ok());
    LauncherStore store(*session);
    Card card = testing::card_for(rank, 2);
    if (rank == 0) card.loopback = {{"192.0.2.77", 0}};  // not an address of this host
    auto joined = exchange_cards(&store, card, testing::options_for(20'000));
    EXPECT_EQ(joined.status().code(), StatusCode::kResource) << joined.status().message();
    EXPECT_THAT(joined.status().message(), ::testing::HasSubstr("192.0.2.77"));
  });
}

TEST(Pmi, MissingRankIsATimeout) {
  FakeLauncher launcher(2);
  auto session = open_pmi({.fd = launcher.fd(0), .job = ""}, soon());
  ASSERT_TRUE(session.ok());
  const std::string value = "value";
  Result<std::string> got = (*session)->broadcast(&value, deadline_after(now_ns(), 100));
  EXPECT_EQ(got.status().code(), StatusCode::kTimeout);
  EXPECT_THAT(got.status().message(), ::testing::HasSubstr("not all ranks"));
  EXPECT_FALSE((*session)->broadcast(&value, soon()).ok());
}

TEST(Pmi, LauncherThatIsNone) {
  EXPECT_FALSE(open_pmi({.fd = -1, .job = ""}, soon()).ok());
  int pair[2] = {-1, -1};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
  posix::UniqueFd ours(pair[0]);
  posix::UniqueFd theirs(pair[1]);
  ASSERT_EQ(::write(ours.get(), "hello there\n", 12), 12);
  EXPECT_EQ(open_pmi({.fd = theirs.get(), .job = ""}, soon()).status().code(),
            StatusCode::kInvalidArgument);
  ours.reset();
  EXPECT_FALSE(open_pmi({.fd = theirs.get(), .job = ""}, soon()).ok());
}

TEST(Pmi, StoreServesTheJoinAlone) {
  LauncherStore store(nullptr);
  EXPECT_EQ(store.set("k", "v").code(), StatusCode::kUnsupported);
  EXPECT_EQ(store.get("k", 1).status().code(), StatusCode::kUnsupported);
  EXPECT_EQ(store.add("k", 1).status().code(), StatusCode::kUnsupported);
}

}  // namespace
}  // namespace ciuic::bootstrap
