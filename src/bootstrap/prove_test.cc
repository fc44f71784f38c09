// SPDX-License-Identifier: Apache-2.0
// prove_test.cc: "hosts" of one machine, told apart by their id, prove their addresses.

#include "bootstrap/prove.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bootstrap/exchange_fixture.h"
#include "bootstrap/memory_store.h"
#include "drivers/posix/socket.h"

namespace ciuic::bootstrap {
namespace {

using testing::card_for;
using testing::options_for;
using testing::run_threads;

struct Rank {
  Card card;
  std::vector<posix::UniqueFd> listeners;
};

// A rank that listens at 127.0.0.1, as its address towards other machines.
Rank rank_on(int rank, int size, const std::string& host) {
  Rank made;
  made.card = card_for(rank, size);
  made.card.host_name = host;
  made.card.host_id = host;
  made.card.machine_id = host;
  posix::UniqueFd fd = std::move(*posix::listen_at({"127.0.0.1", 0}));
  made.card.addresses = {*posix::local_address(fd.get())};
  // Rank 0's rendezvous port is at the same place.
  made.card.loopback = {};
  made.listeners.push_back(std::move(fd));
  return made;
}

void prove_all(std::vector<Rank>* ranks, int64_t timeout_ms,
               const std::function<void(int, const Result<Reachable>&)>& check) {
  MemoryStore store;
  run_threads(static_cast<int>(ranks->size()), [&](int rank) {
    Rank& own = (*ranks)[static_cast<size_t>(rank)];
    auto assembly = exchange_cards(&store, own.card, options_for(30'000));
    ASSERT_TRUE(assembly.ok()) << assembly.status().message();
    const TimeNs deadline = deadline_after(now_ns(), timeout_ms);
    const Result<Reachable> reachable = prove_addresses(assembly->get(), own.listeners, deadline);
    check(rank, reachable);
    if (!reachable.ok()) return;
    EXPECT_TRUE((*assembly)->gather(std::string(), deadline).ok());
  });
}

TEST(Prove, BetweenThreeHostsOfTwo) {
  std::vector<Rank> ranks;
  for (int rank = 0; rank < 6; ++rank) {
    ranks.push_back(rank_on(rank, 6, fmt::format("host-{}", rank % 3)));
  }
  // An address that nobody answers at is left out of the result, and delays nothing for long.
  posix::UniqueFd gone = std::move(*posix::listen_at({"127.0.0.2", 0}));
  ranks[1].card.addresses.insert(ranks[1].card.addresses.begin(),
                                 *posix::local_address(gone.get()));
  gone.reset();
  prove_all(&ranks, 30'000, [&](int rank, const Result<Reachable>& reachable) {
    ASSERT_TRUE(reachable.ok()) << reachable.status().message();
    for (int other = 0; other < 6; ++other) {
      const auto addresses = reachable->addresses(rank, other);
      const Card& card = ranks[static_cast<size_t>(other)].card;
      if (other % 3 == rank % 3) {
        EXPECT_EQ(addresses, card.addresses);
      } else {
        ASSERT_EQ(addresses.size(), 1u);
        EXPECT_EQ(addresses[0], card.addresses.back());
      }
    }
  });
}

TEST(Prove, UnreachableHostIsNamedOnAllRanks) {
  std::vector<Rank> ranks;
  for (int rank = 0; rank < 3; ++rank) {
    ranks.push_back(rank_on(rank, 3, fmt::format("host-{}", rank)));
  }
  ranks[2].listeners.clear();
  const std::string tried = ranks[2].card.addresses[0].format();
  prove_all(&ranks, 30'000, [&](int, const Result<Reachable>& reachable) {
    ASSERT_FALSE(reachable.ok());
    EXPECT_EQ(reachable.status().code(), StatusCode::kPeerLost);
    for (const std::string& word :
         {std::string("rank 0 (host host-0"), std::string("host host-0 cannot reach host host-2"),
          tried, std::string("ECONNREFUSED")}) {
      EXPECT_THAT(reachable.status().message(), ::testing::HasSubstr(word));
    }
  });
}

TEST(Prove, SilentHostIsATimeoutThatNamesIt) {
  std::vector<Rank> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.push_back(rank_on(rank, 2, fmt::format("host-{}", rank)));
  }
  // Somebody else has the port that rank 1 names: he accepts, and says nothing.
  posix::UniqueFd other = std::move(*posix::listen_at({"127.0.0.1", 0}));
  ranks[1].card.addresses = {*posix::local_address(other.get())};
  prove_all(&ranks, 800, [&](int, const Result<Reachable>& reachable) {
    ASSERT_FALSE(reachable.ok());
    EXPECT_THAT(reachable.status().message(), ::testing::HasSubstr("cannot reach host host-1"));
    EXPECT_THAT(reachable.status().message(), ::testing::HasSubstr("no answer in time"));
  });
}

TEST(Prove, OneHostNeedsNoProof) {
  std::vector<Rank> ranks;
  for (int rank = 0; rank < 2; ++rank) ranks.push_back(rank_on(rank, 2, "host"));
  prove_all(&ranks, 1'000, [&](int rank, const Result<Reachable>& reachable) {
    ASSERT_TRUE(reachable.ok());
    EXPECT_EQ(reachable->addresses(rank, 1 - rank),
              ranks[static_cast<size_t>(1 - rank)].card.addresses);
  });
}

}  // namespace
}  // namespace ciuic::bootstrap
