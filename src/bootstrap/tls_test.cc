// SPDX-License-Identifier: Apache-2.0
// tls_test.cc: joins, and the store, over connections that go by TLS, and ranks that do not agree
// on it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include "bootstrap/dial.h"
#include "bootstrap/exchange_fixture.h"
#include "bootstrap/memory_store.h"
#include "bootstrap/store_limits.h"
#include "bootstrap/tcp_store.h"
#include "drivers/posix/socket.h"

namespace ciuic::bootstrap {
namespace {

using ::testing::AllOf;
using testing::cards_for;
using ::testing::HasSubstr;
using testing::join_all;
using testing::Joined;
using ::testing::Not;
using testing::options_for;
using testing::run_threads;

std::vector<ExchangeOptions> options_with_tls(const std::vector<bool>& tls, int64_t timeout_ms) {
  std::vector<ExchangeOptions> options;
  for (const bool one : tls) {
    options.push_back(options_for(timeout_ms));
    options.back().tls = one;
  }
  return options;
}

TEST(Tls, ARankOfEachJoinsAndGathers) {
  auto store = std::make_shared<MemoryStore>();
  std::vector<ExchangeOptions> options = options_with_tls({true, true, true}, 60'000);
  options[0].tuning = std::string(kMaxTuningBytes, 't');  // many records
  std::vector<Joined> joined = join_all(cards_for(3), options, [&] { return store; });
  for (Joined& one : joined) {
    ASSERT_TRUE(one.ok()) << one.status().message();
    EXPECT_TRUE((*one)->roll().tls);
    EXPECT_EQ((*one)->roll().tuning, options[0].tuning);
  }
  run_threads(3, [&](int rank) {
    for (int round = 0; round < 20; ++round) {
      const std::string mine(static_cast<size_t>(rank * 20'000 + round), 'a');
      auto all =
          (*joined[static_cast<size_t>(rank)])->gather(mine, deadline_after(now_ns(), 60'000));
      ASSERT_TRUE(all.ok()) << all.status().message();
      for (size_t of = 0; of < 3; ++of) {
        EXPECT_EQ((*all)[of].size(), of * 20'000 + static_cast<size_t>(round));
      }
    }
  });
}

TEST(Tls, RanksThatDoNotAgreeAreNamedToAll) {
  for (const bool rank_0 : {false, true}) {
    auto store = std::make_shared<MemoryStore>();
    const std::vector<Joined> joined = join_all(
        cards_for(3), options_with_tls({rank_0, rank_0, !rank_0}, 20'000), [&] { return store; });
    const std::string ours = rank_0 ? "1" : "0";
    const std::string theirs = rank_0 ? "0" : "1";
    for (size_t rank = 0; rank < 2; ++rank) {
      ASSERT_EQ(joined[rank].status().code(), StatusCode::kMismatch)
          << joined[rank].status().message();
      EXPECT_THAT(
          joined[rank].status().message(),
          AllOf(HasSubstr("CIUIC_TLS"), HasSubstr("rank 0 (host here, process 1000) has " + ours),
                HasSubstr("rank 2 has " + theirs)));
    }
    ASSERT_EQ(joined[2].status().code(), StatusCode::kMismatch) << joined[2].status().message();
    EXPECT_THAT(joined[2].status().message(),
                AllOf(HasSubstr("rank 0"),
                      HasSubstr("CIUIC_TLS=" + theirs + " here, " + ours + " at the peer")));
  }
}

TEST(Tls, TheStoreDoesAsEachClientWants) {
  const std::string secret(32, 'k');
  auto server = std::move(*TcpStoreServer::start({"127.0.0.1", 0}, secret));
  const TimeNs deadline = deadline_after(now_ns(), 20'000);
  auto plain = std::move(*TcpStore::connect(server->address(), secret, deadline));
  auto hidden = std::move(*TcpStore::connect(server->address(), secret, deadline, true));
  const std::string large(kMaxValueBytes, 'v');
  ASSERT_TRUE(hidden->set("large", large).ok());
  EXPECT_EQ(*plain->get("large", 1000), large);
  EXPECT_EQ(*hidden->get("large", 1000), large);
  EXPECT_EQ(*hidden->add("count", 2), 2);
  EXPECT_EQ(*plain->add("count", 2), 4);
  EXPECT_EQ(
      TcpStore::connect(server->address(), std::string(32, 'x'), deadline, true).status().code(),
      StatusCode::kPermission);
  // One that waits is answered when another sets.
  run_threads(2, [&](int i) {
    if (i == 0) {
      EXPECT_EQ(*hidden->get("awaited", 20'000), "here");
    } else {
      EXPECT_TRUE(plain->set("awaited", "here").ok());
    }
  });
}

// Both ends of a connection, driven by hand.
struct Pair {
  Pair() {
    security::Identity identity{.job = "job",
                                .epoch = 1,
                                .group = 2,
                                .purpose = 3,
                                .from = 1,
                                .to = 0,
                                .tls = security::UseTls::kYes};
    const posix::UniqueFd listener = std::move(*posix::listen_at({"127.0.0.1", 0}));
    const posix::Address at = *posix::local_address(listener.get());
    client = std::make_unique<Channel>(std::move(*Channel::connect(
        at, security::Handshake::connecting(std::string(32, 's'), identity), 1 << 20)));
    EXPECT_TRUE(*posix::wait_for(listener.get(), POLLIN, deadline_after(now_ns(), 20'000)));
    posix::UniqueFd fd = std::move(*posix::accept_from(listener.get()));
    server = std::make_unique<Channel>(
        std::move(fd), security::Handshake::accepting(std::string(32, 's'), identity), 1 << 20);
  }

  // Lets both go on until `done`.
  bool drive(const std::function<bool()>& done) {
    const TimeNs limit = deadline_after(now_ns(), 20'000);
    while (!done() && now_ns() < limit) {
      last_of_client = client ? client->progress() : Status();
      last_of_server = server ? server->progress() : Status();
    }
    return done();
  }

  std::unique_ptr<Channel> client;
  std::unique_ptr<Channel> server;
  Status last_of_client;
  Status last_of_server;
};

TEST(Tls, FramesWaitForTheProofAndThenGoInOrder) {
  Pair pair;
  // Queued before anything is proven.
  for (int i = 0; i < 100; ++i) pair.client->send(std::string(static_cast<size_t>(i) * 300, 'f'));
  EXPECT_FALSE(pair.client->flushed());
  int came = 0;
  ASSERT_TRUE(pair.drive([&] {
    std::string frame;
    while (pair.server->receive(&frame)) {
      EXPECT_EQ(frame.size(), static_cast<size_t>(came) * 300);
      EXPECT_TRUE(pair.server->proven());
      ++came;
    }
    return came == 100;
  }));
  EXPECT_TRUE(pair.client->uses_tls());
  EXPECT_TRUE(pair.client->flushed());
}

// Nobody takes the frames: reading pauses, what was decrypted meanwhile is kept, and no further
// byte has to come for it to be found.
TEST(Tls, WhatWasReadIsFoundWithoutAnotherByte) {
  Pair pair;
  ASSERT_TRUE(pair.drive([&] { return pair.client->proven() && pair.server->proven(); }));
  const int count = 1000;
  for (int i = 0; i < count; ++i) pair.client->send("a small frame");
  ASSERT_TRUE(pair.drive([&] { return pair.client->flushed(); }));
  std::string frame;
  int came = 0;
  for (bool any = true; any;) {
    ASSERT_TRUE(pair.server->progress().ok());
    any = false;
    while (pair.server->receive(&frame)) {
      ++came;
      any = true;
    }
    // As its owner would: with poll, and only after a progress() that left nothing.
    if (!any && came < count) {
      any = *posix::wait_for(pair.server->fd(), POLLIN, deadline_after(now_ns(), 20'000));
    }
  }
  EXPECT_EQ(came, count);
}

TEST(Tls, ADroppedChannelSaysThatItEnds) {
  Pair pair;
  ASSERT_TRUE(pair.drive([&] { return pair.client->proven() && pair.server->proven(); }));
  pair.client->send("last");
  ASSERT_TRUE(pair.drive([&] { return pair.client->flushed(); }));
  pair.client.reset();
  std::string frame;
  ASSERT_TRUE(pair.drive([&] { return !pair.last_of_server.ok(); }));
  EXPECT_EQ(pair.last_of_server.code(), StatusCode::kPeerLost);
  EXPECT_THAT(pair.last_of_server.message(), Not(HasSubstr("close_notify")));
  EXPECT_TRUE(pair.server->receive(&frame));
  EXPECT_EQ(frame, "last");
}

TEST(Tls, AConnectionThatIsCutIsAnError) {
  Pair pair;
  ASSERT_TRUE(pair.drive([&] { return pair.client->proven() && pair.server->proven(); }));
  ::shutdown(pair.client->fd(), SHUT_WR);  // as somebody on the way would
  ASSERT_TRUE(pair.drive([&] { return !pair.last_of_server.ok(); }));
  EXPECT_EQ(pair.last_of_server.code(), StatusCode::kPeerLost);
  EXPECT_THAT(pair.last_of_server.message(), HasSubstr("close_notify"));
}

}  // namespace
}  // namespace ciuic::bootstrap
