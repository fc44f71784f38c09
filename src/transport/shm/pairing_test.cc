// SPDX-License-Identifier: Apache-2.0
// pairing_test.cc: ranks as threads, and as processes, find each other over Unix sockets.

#include "transport/shm/pairing.h"

#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <csignal>
#include <thread>

#include "drivers/posix/fd_passing.h"
#include "drivers/posix/no_descriptors.h"
#include "transport/test_fabric.h"

namespace ciuic::transport {
namespace {

using shm::LocalLinks;

struct Rank {
  std::unique_ptr<posix::Poller> poller = std::move(posix::Poller::create().value());
  shm::UnixListener listener = std::move(shm::listen_abstract().value());
  Result<LocalLinks> links = Status(StatusCode::kAborted, "not run");
};

TimeNs in_ms(int64_t timeout_ms) { return deadline_after(now_ns(), timeout_ms); }

shm::PairingOptions options_of(const std::vector<Rank>& ranks, size_t rank, TimeNs deadline) {
  shm::PairingOptions options;
  options.rank = static_cast<int>(rank);
  options.listener = ranks[rank].listener.fd.get();
  options.secret = kTestSecret;
  options.job = "test";
  options.epoch = 3;
  options.group = 7;
  options.deadline = deadline;
  options.poller = ranks[rank].poller.get();
  for (size_t peer = 0; peer < ranks.size(); ++peer) {
    if (peer == rank) continue;
    options.peers.push_back({static_cast<int>(peer), ranks[peer].listener.name});
  }
  return options;
}

// Runs each rank that is not left out in a thread of its own.
void pair_all(std::vector<Rank>* ranks, int64_t timeout_ms,
              const std::function<bool(size_t, shm::PairingOptions*)>& change) {
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < ranks->size(); ++rank) {
    shm::PairingOptions options = options_of(*ranks, rank, in_ms(timeout_ms));
    if (!change(rank, &options)) continue;
    threads.emplace_back(
        [ranks, rank, options] { (*ranks)[rank].links = shm::connect_local_peers(options); });
  }
  for (std::thread& thread : threads) thread.join();
}

void expect_linked(std::vector<Rank>* ranks, size_t a, size_t b) {
  Link* from = (*ranks)[a].links->links[b - (b > a ? 1 : 0)].link.get();
  Link* to = (*ranks)[b].links->links[a - (a > b ? 1 : 0)].link.get();
  ASSERT_NE(from, nullptr);
  ASSERT_NE(to, nullptr);
  const uint32_t number = static_cast<uint32_t>(100 * a + b);
  for (const size_t bytes : {size_t{8}, size_t{5000}}) {
    const std::vector<std::byte> payload = pattern(number, bytes);
    ASSERT_TRUE(from->can_send(bytes));
    from->send(data_header(number, bytes), payload.data(), nullptr);
    Arrival arrival;
    ASSERT_TRUE(to->receive(&arrival));
    expect_header(arrival.header, data_header(number, bytes));
    EXPECT_EQ(std::memcmp(arrival.data, payload.data(), bytes), 0);
    to->release(arrival.token);
  }
}

TEST(Pairing, LinksEveryTwoRanksOfAHost) {
  for (const size_t size : {size_t{2}, size_t{3}, size_t{8}}) {
    std::vector<Rank> ranks(size);
    pair_all(&ranks, 60'000, [](size_t, shm::PairingOptions*) { return true; });
    for (size_t a = 0; a < size; ++a) {
      ASSERT_TRUE(ranks[a].links.ok()) << ranks[a].links.status().message();
      EXPECT_EQ(ranks[a].links->strangers, 0);
      ASSERT_EQ(ranks[a].links->links.size(), size - 1);
      for (size_t b = 0; b < size; ++b) {
        if (a != b) expect_linked(&ranks, a, b);
      }
    }
  }
}

// Fails as soon as something happens at a socket.
class SocketWatch final : public shm::PairingWatch {
 public:
  explicit SocketWatch(int fd) : fd_(fd) {}
  void add_to(std::vector<pollfd>* fds) override {
    fds->push_back({fd_, POLLIN, 0});
    fds->push_back({-1, 0, 0});
  }
  Status look(std::span<const pollfd> entries) override {
    if (entries.empty()) return {};
    EXPECT_EQ(entries.size(), 2u);
    EXPECT_EQ(entries[0].fd, fd_);
    if (entries[0].revents == 0) return {};
    return {StatusCode::kPeerLost, "rank 2 left"};
  }

 private:
  int fd_;
};

TEST(Pairing, EndsAtOnceWhenWhatItIsPartOfHasFailed) {
  std::vector<Rank> ranks(3);  // rank 2 never comes
  shm::UnixListener listener = std::move(shm::listen_abstract().value());
  SocketWatch watch(listener.fd.get());
  std::thread failing([&] {
    // Rank 1 has come here and is linked, or about to be; nobody else ever comes.
    pollfd waiting{ranks[2].listener.fd.get(), POLLIN, 0};
    ASSERT_EQ(::poll(&waiting, 1, 60'000), 1);
    EXPECT_TRUE(posix::connect_abstract(listener.name).ok());
  });
  pair_all(&ranks, 3'600'000, [&](size_t rank, shm::PairingOptions* options) {
    options->watch = &watch;
    return rank != 2;
  });
  failing.join();
  for (size_t rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(ranks[rank].links.status().code(), StatusCode::kPeerLost);
    EXPECT_EQ(ranks[rank].links.status().message(), "rank 2 left");
  }
}

TEST(Pairing, RanksCalledAtVeryDifferentTimesStillMeet) {
  std::vector<Rank> ranks(3);
  shm::PairingOptions late = options_of(ranks, 2, in_ms(60'000));
  std::thread first(
      [&] { ranks[0].links = shm::connect_local_peers(options_of(ranks, 0, in_ms(60'000))); });
  std::thread second(
      [&] { ranks[1].links = shm::connect_local_peers(options_of(ranks, 1, in_ms(60'000))); });
  // Begins when both others have connected here and wait for an answer.
  pollfd waiting{ranks[2].listener.fd.get(), POLLIN, 0};
  ASSERT_EQ(::poll(&waiting, 1, 60'000), 1);
  ranks[2].links = shm::connect_local_peers(late);
  first.join();
  second.join();
  expect_linked(&ranks, 0, 2);
  expect_linked(&ranks, 2, 1);
  expect_linked(&ranks, 1, 0);
}

TEST(Pairing, NoPeersAreNoWork) {
  std::vector<Rank> ranks(1);
  const Result<LocalLinks> links = shm::connect_local_peers(options_of(ranks, 0, in_ms(0)));
  ASSERT_TRUE(links.ok());
  EXPECT_EQ(links->segment, nullptr);
  EXPECT_TRUE(links->links.empty());
}

TEST(Pairing, APeerThatDoesNotComeIsNamedAndTheOthersAreLinked) {
  std::vector<Rank> ranks(3);
  pair_all(&ranks, 3000, [](size_t rank, shm::PairingOptions*) { return rank != 1; });
  expect_linked(&ranks, 0, 2);
  for (const size_t rank : {size_t{0}, size_t{2}}) {
    const shm::LocalLink& missing = ranks[rank].links->links[rank == 0 ? 0 : 1];
    EXPECT_EQ(missing.rank, 1);
    EXPECT_EQ(missing.link, nullptr);
    EXPECT_EQ(missing.reason.code(), StatusCode::kTimeout);
    EXPECT_NE(missing.reason.message().find("rank 1"), std::string::npos);
  }
}

TEST(Pairing, ANameThatNobodyListensToIsReportedAtOnce) {
  std::vector<Rank> ranks(2);
  shm::PairingOptions options = options_of(ranks, 0, in_ms(60'000));
  options.peers[0].unix_name = "ciuic-test-nobody";
  const Result<LocalLinks> links = shm::connect_local_peers(options);  // does not wait
  ASSERT_TRUE(links.ok());
  EXPECT_EQ(links->links[0].link, nullptr);
  EXPECT_EQ(links->links[0].reason.code(), StatusCode::kPeerLost);
  EXPECT_NE(links->links[0].reason.message().find("ECONNREFUSED"), std::string::npos);
}

TEST(Pairing, AnotherSecretJobOrGroupIsRefused) {
  const std::vector<std::function<void(shm::PairingOptions*)>> changes = {
      [](shm::PairingOptions* options) { options->secret = std::string(32, 'x'); },
      [](shm::PairingOptions* options) { options->job = "another"; },
      [](shm::PairingOptions* options) { options->group = 8; },
      [](shm::PairingOptions* options) { options->epoch = 4; },
  };
  // All cases at once, since each has a rank that waits in vain.
  struct Case {
    const std::function<void(shm::PairingOptions*)>* change;
    size_t odd;
    std::vector<Rank> ranks;
  };
  std::vector<Case> cases;
  for (const auto& change : changes) {
    for (const size_t odd : {size_t{0}, size_t{2}}) {
      cases.push_back({&change, odd, std::vector<Rank>(3)});
    }
  }
  std::vector<std::thread> threads;
  for (Case& one : cases) {
    threads.emplace_back([&one] {
      pair_all(&one.ranks, 3000, [&](size_t rank, shm::PairingOptions* options) {
        if (rank == one.odd) (*one.change)(options);
        return true;
      });
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (Case& one : cases) {
    expect_linked(&one.ranks, 1, one.odd == 0 ? 2 : 0);
    for (const shm::LocalLink& link : one.ranks[one.odd].links->links) {
      EXPECT_EQ(link.link, nullptr);
      EXPECT_FALSE(link.reason.ok());
    }
    EXPECT_EQ(one.ranks[one.odd].links->segment, nullptr);
  }
}

TEST(Pairing, RanksThatDisagreeAboutTheHostsRanksAreToldSo) {
  std::vector<Rank> ranks(2);
  pair_all(&ranks, 2000, [&](size_t rank, shm::PairingOptions* options) {
    if (rank == 0) options->peers.push_back({5, "ciuic-test-nobody"});
    return true;
  });
  for (size_t rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(ranks[rank].links->links[0].link, nullptr);
    EXPECT_EQ(ranks[rank].links->links[0].reason.code(), StatusCode::kMismatch)
        << ranks[rank].links->links[0].reason.message();
  }
}

TEST(Pairing, StrangersDoNotDisturb) {
  std::vector<Rank> ranks(2);
  std::vector<posix::UniqueFd> strangers;
  for (int i = 0; i < 200; ++i) {
    Result<posix::UniqueFd> fd = posix::connect_abstract(ranks[1].listener.name);
    ASSERT_TRUE(fd.ok());
    ASSERT_TRUE(fd->valid());
    const std::string garbage(1000, static_cast<char>(i));
    if (i % 2 == 0) {
      ASSERT_TRUE(posix::send_some(fd->get(), garbage.data(), garbage.size()).ok());
    }
    strangers.push_back(std::move(*fd));
  }
  pair_all(&ranks, 60'000, [](size_t, shm::PairingOptions*) { return true; });
  expect_linked(&ranks, 0, 1);
  EXPECT_GE(ranks[1].links->strangers, 100);
}

TEST(Pairing, ATimeOutNamesTheLimitThatKeptAPeerOutside) {
  std::vector<Rank> ranks(2);
  const shm::PairingOptions options = options_of(ranks, 1, in_ms(3000));
  posix::StayingThread rank_1([&] { ranks[1].links = shm::connect_local_peers(options); });
  // It is turned away, so rank 1 has its segment by then.
  const posix::UniqueFd stranger = std::move(*posix::connect_abstract(ranks[1].listener.name));
  const std::string garbage(1000, 'x');
  ASSERT_TRUE(posix::send_some(stranger.get(), garbage.data(), garbage.size()).ok());
  ASSERT_TRUE(*posix::wait_for(stranger.get(), POLLIN, in_ms(20'000)));
  {
    posix::NoDescriptors none;
    none.spare_one();
    const Result<posix::UniqueFd> outside = posix::connect_abstract(ranks[1].listener.name);
    ASSERT_TRUE(outside.ok() && outside->valid());
    rank_1.wait();
  }
  ASSERT_TRUE(ranks[1].links.ok());
  const Status& reason = ranks[1].links->links[0].reason;
  EXPECT_EQ(reason.code(), StatusCode::kTimeout);
  for (const char* word : {"rank 0 did not come", "connections wait that rank 1 cannot accept",
                           "EMFILE", "RLIMIT_NOFILE allows"}) {
    EXPECT_NE(reason.message().find(word), std::string::npos) << word << ": " << reason.message();
  }
}

// In a process of its own, whose limit is not lifted again.
TEST(Pairing, ARankWithoutMemoryKeepsNobodyWaiting) {
  std::vector<Rank> ranks(2);
  const pid_t child = fork();
  if (child == 0) {
    ranks[0].listener = std::move(*shm::listen_abstract());  // the parent's were closed here
    const rlimit limit{1, 1};
    signal(SIGXFSZ, SIG_IGN);
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) _exit(2);
    Result<LocalLinks> links = shm::connect_local_peers(options_of(ranks, 0, in_ms(60'000)));
    _exit(links.status().code() == StatusCode::kResource ? 0 : 1);
  }
  Result<LocalLinks> links = shm::connect_local_peers(options_of(ranks, 1, in_ms(60'000)));
  ASSERT_TRUE(links.ok());
  EXPECT_EQ(links->links[0].link, nullptr);
  EXPECT_EQ(links->links[0].reason.code(), StatusCode::kResource);
  EXPECT_NE(links->links[0].reason.message().find("rank 0 has no memory"), std::string::npos)
      << links->links[0].reason.message();
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

// Real processes: the lower rank, which connects, dies without a word.
TEST(Pairing, TheDeathOfAProcessIsSeenAtOnce) {
  std::vector<Rank> ranks(2);
  const pid_t child = fork();
  if (child == 0) {
    ranks[0].listener = std::move(*shm::listen_abstract());  // the parent's were closed here
    Result<LocalLinks> links = shm::connect_local_peers(options_of(ranks, 0, in_ms(60'000)));
    if (!links.ok() || links->links[0].link == nullptr) _exit(1);
    const std::vector<std::byte> payload = pattern(1, 3000);
    links->links[0].link->send(data_header(1, 3000), payload.data(), nullptr);
    raise(SIGKILL);
  }
  Result<LocalLinks> links = shm::connect_local_peers(options_of(ranks, 1, in_ms(60'000)));
  ASSERT_TRUE(links.ok());
  Link* link = links->links[0].link.get();
  ASSERT_NE(link, nullptr) << links->links[0].reason.message();
  Checker checker(link);
  ASSERT_TRUE(pump_until(
      [&] {
        ranks[1].poller->poll(1000);
        link->progress();
        while (checker.take()) {
        }
      },
      [&] { return !link->status().ok(); }));
  EXPECT_EQ(checker.received(), 1u);
  EXPECT_EQ(link->status().code(), StatusCode::kPeerLost);
  EXPECT_NE(link->status().message().find("rank 0"), std::string::npos);
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status));
}

}  // namespace
}  // namespace ciuic::transport
