// SPDX-License-Identifier: Apache-2.0
// link_test.cc: what every link promises (link.h), over shared memory, TCP and TLS.

#include "transport/link.h"

#include <algorithm>
#include <random>
#include <thread>

#include "transport/test_fabric.h"

namespace ciuic::transport {
namespace {

class LinkTest : public testing::TestWithParam<const char*> {
 protected:
  void make(int size) { fabric_ = make_fabric(GetParam(), size); }
  Link& link(int from, int to) { return fabric_->link(from, to); }

  bool pump(const std::function<bool()>& done) {
    return pump_until([this] { fabric_->step(); }, done);
  }

  std::unique_ptr<Fabric> fabric_;
};

INSTANTIATE_TEST_SUITE_P(Transports, LinkTest,
                         testing::Values("shm", "shm_one_mapping", "tcp", "tls"),
                         [](const auto& instance) { return std::string(instance.param); });

TEST_P(LinkTest, DeliversEverySizeInOrderAndWhole) {
  make(2);
  const std::vector<size_t> sizes = {0,    1,     8,     24,    31,    32,    33,   47,   48,
                                     49,   100,   4047,  4048,  4095,  4096,  4097, 8192, 0,
                                     5000, 16000, 16336, 16384, 65535, 65536, 3,    0};
  Feeder feeder(&link(0, 1));
  Checker checker(&link(1, 0));
  size_t next = 0;
  ASSERT_TRUE(pump([&] {
    while (next < sizes.size() && feeder.send(sizes[next])) ++next;
    while (checker.take()) checker.release_all();
    return checker.received() == sizes.size();
  }));
  EXPECT_TRUE(pump([&] { return feeder.spoil(), link(0, 1).sent() == sizes.size(); }));
  EXPECT_TRUE(link(0, 1).status().ok());
  EXPECT_TRUE(link(1, 0).status().ok());
}

TEST_P(LinkTest, CarriesMegabytesInChunksBothWays) {
  make(2);
  const size_t chunk = std::min<size_t>(link(0, 1).max_payload(), 300'000);
  const uint32_t chunks = 100;
  Feeder feeders[] = {Feeder(&link(0, 1)), Feeder(&link(1, 0))};
  Checker checkers[] = {Checker(&link(1, 0)), Checker(&link(0, 1))};
  ASSERT_TRUE(pump([&] {
    bool done = true;
    for (int way = 0; way < 2; ++way) {
      while (feeders[way].number() < chunks && feeders[way].send(chunk)) {
      }
      feeders[way].spoil();
      while (checkers[way].take()) checkers[way].release_all();
      done = done && checkers[way].received() == chunks;
    }
    return done;
  }));
}

TEST_P(LinkTest, TellsWhenItTakesNoMoreAndLosesNothing) {
  make(2);
  for (const size_t bytes : {size_t{8}, size_t{2000}, size_t{60'000}}) {
    make(2);
    Feeder feeder(&link(0, 1));
    ASSERT_TRUE(pump([&] { return feeder.send(bytes); }));
    // Nobody reads: the link must say no before it has taken 256 MiB or a million messages.
    uint32_t refused = 0;
    while (refused < 100) {
      if (!feeder.send(bytes)) ++refused;
      fabric_->step(0);
      feeder.spoil();
      ASSERT_LT(feeder.number(), 1'000'000u);
      ASSERT_LT(feeder.number() * bytes, size_t{256} << 20);
    }
    Checker checker(&link(1, 0));
    ASSERT_TRUE(pump([&] {
      while (checker.take()) checker.release_all();
      return checker.received() == feeder.number();
    }));
    const uint32_t before = feeder.number();
    ASSERT_TRUE(pump([&] {
      while (checker.take()) checker.release_all();
      return feeder.number() > before + 100 || (feeder.send(bytes) && false);
    }));
  }
}

TEST_P(LinkTest, KeepsHeldPayloadsUntilTheyAreReleasedInAnyOrder) {
  std::mt19937 random(1);
  for (const size_t bytes : {size_t{16}, size_t{1500}, size_t{40'000}}) {
    make(2);
    Feeder feeder(&link(0, 1));
    Checker checker(&link(1, 0));
    ASSERT_TRUE(pump([&] {
      if (feeder.number() < 400) feeder.send(bytes);
      checker.take();
      // Holds several, and gives back a random one of them.
      if (checker.held() >= 3) checker.release(random() % checker.held());
      return checker.received() == 400;
    }));
    checker.release_all();
  }
}

TEST_P(LinkTest, StopsRatherThanOverwriteWhatNobodyReleases) {
  for (const size_t bytes : {size_t{16}, size_t{1500}}) {
    make(2);
    Feeder feeder(&link(0, 1));
    Checker checker(&link(1, 0));
    ASSERT_TRUE(pump([&] { return feeder.send(bytes); }));
    // Holds everything: sooner or later nothing comes any more.
    uint32_t idle = 0;
    while (idle < 2000 && checker.held() < 10'000) {
      for (int i = 0; i < 8; ++i) feeder.send(bytes);
      fabric_->step();
      feeder.spoil();
      idle = checker.take() ? 0 : idle + 1;
    }
    EXPECT_GE(checker.held(), 6u);
    EXPECT_LT(checker.held(), 10'000u);
    checker.release_all();  // looks at every payload again
    ASSERT_TRUE(pump([&] {
      while (checker.take()) checker.release_all();
      return checker.received() == feeder.number();
    }));
  }
}

TEST_P(LinkTest, PublishesOnePayloadToManyReaders) {
  make(4);
  std::vector<Checker> checkers;
  for (int reader = 1; reader < 4; ++reader) checkers.emplace_back(&link(reader, 0));
  std::mt19937 random(2);
  for (uint32_t number = 1; number <= 200; ++number) {
    const size_t bytes = std::vector<size_t>{0, 20, 33, 1000, 4096, 20'000, 65'536}[random() % 7];
    std::vector<std::byte> payload = pattern(number, bytes);
    Publication publication;
    std::vector<uint64_t> counted;
    for (int reader = 1; reader < 4; ++reader) {
      ASSERT_TRUE(pump([&] {
        for (Checker& checker : checkers) {
          while (checker.take()) checker.release_all();
        }
        return link(0, reader).can_send(bytes);
      }));
      link(0, reader).send(data_header(number, bytes), payload.data(), &publication);
    }
    ASSERT_TRUE(pump([&] {
      for (int reader = 1; reader < 4; ++reader) {
        if (link(0, reader).sent() < number) return false;
      }
      return true;
    }));
    std::fill(payload.begin(), payload.end(), std::byte{0xdd});
  }
  ASSERT_TRUE(pump([&] {
    bool done = true;
    for (Checker& checker : checkers) {
      while (checker.take()) checker.release_all();
      done = done && checker.received() == 200;
    }
    return done;
  }));
}

TEST_P(LinkTest, SurvivesRandomInterleavings) {
  for (uint32_t seed = 1; seed <= 10; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    make(3);
    std::mt19937 random(seed);
    struct Way {
      int from, to;
      Feeder feeder;
      Checker checker;
    };
    std::vector<Way> ways;
    for (int from = 0; from < 3; ++from) {
      for (int to = 0; to < 3; ++to) {
        if (from == to) continue;
        ways.push_back({from, to, Feeder(&link(from, to)), Checker(&link(to, from))});
      }
    }
    const uint32_t messages = 300;
    const auto size = [&] {
      const size_t limit = std::vector<size_t>{1, 40, 300, 5000, 65'537}[random() % 5];
      return random() % limit;
    };
    ASSERT_TRUE(pump_until(
        [&] {
          Way& way = ways[random() % ways.size()];
          switch (random() % 6) {
            case 0: fabric_->step(static_cast<int>(random() % 3)); break;
            case 1:
            case 2:
              if (way.feeder.number() < messages) way.feeder.send(size());
              break;
            case 3: way.feeder.spoil(); break;
            case 4:
              if (way.checker.held() < 3) way.checker.take();
              break;
            default:
              if (way.checker.held() > 0) way.checker.release(random() % way.checker.held());
          }
        },
        [&] {
          return std::all_of(ways.begin(), ways.end(), [&](const Way& way) {
            return way.checker.received() == messages && way.checker.held() == 0;
          });
        }));
  }
}

// Ranks as threads: under the thread sanitizer this proves the memory orders.
TEST_P(LinkTest, WorksBetweenThreads) {
  make(3);
  const uint32_t messages = 3000;
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 3; ++rank) {
    ranks.emplace_back([&, rank] {
      std::mt19937 random(static_cast<uint32_t>(rank));
      std::vector<Feeder> feeders;
      std::vector<Checker> checkers;
      for (int peer = 0; peer < 3; ++peer) {
        if (peer == rank) continue;
        feeders.emplace_back(&link(rank, peer));
        checkers.emplace_back(&link(rank, peer));
      }
      EXPECT_TRUE(pump_until(
          [&] {
            fabric_->step(rank);
            for (size_t i = 0; i < feeders.size(); ++i) {
              const size_t bytes = std::vector<size_t>{0, 8, 32, 33, 900, 9000}[random() % 6];
              if (feeders[i].number() < messages) feeders[i].send(bytes);
              feeders[i].spoil();
              if (checkers[i].held() < 3) checkers[i].take();
              if (checkers[i].held() > random() % 3) checkers[i].release(0);
            }
          },
          [&] {
            return std::all_of(
                       checkers.begin(), checkers.end(),
                       [&](const Checker& checker) { return checker.received() == messages; }) &&
                   std::all_of(feeders.begin(), feeders.end(),
                               [&](const Feeder& feeder) { return feeder.number() == messages; });
          }));
      // What still waits in a socket's queue goes before the rank leaves.
      EXPECT_TRUE(pump_until([&] { fabric_->step(rank); },
                             [&] {
                               bool all = true;
                               for (int peer = 0; peer < 3; ++peer) {
                                 if (peer != rank) all = all && link(rank, peer).sent() == messages;
                               }
                               return all;
                             }));
    });
  }
  for (std::thread& rank : ranks) rank.join();
}

TEST_P(LinkTest, AGoodbyeIsNoErrorUntilDataIsToBeSent) {
  make(2);
  Feeder feeder(&link(0, 1));
  ASSERT_TRUE(pump([&] { return feeder.send(5000); }));
  ASSERT_TRUE(pump([&] { return link(0, 1).sent() == 1; }));
  link(0, 1).close();

  Checker checker(&link(1, 0));
  ASSERT_TRUE(pump([&] { return checker.take(); }));
  checker.release_all();
  Arrival arrival;
  ASSERT_TRUE(pump([&] { return link(1, 0).receive(&arrival); }));
  EXPECT_EQ(arrival.header.type, wire::MessageType::kGoodbye);
  EXPECT_EQ(arrival.header.group, 7u);
  for (int i = 0; i < 100; ++i) fabric_->step(1);
  EXPECT_FALSE(link(1, 0).receive(&arrival));
  EXPECT_TRUE(link(1, 0).status().ok()) << link(1, 0).status().message();

  // A last acknowledgement is of no interest to anybody, and no error.
  wire::Header ack;
  ack.type = wire::MessageType::kAck;
  ASSERT_TRUE(link(1, 0).can_send(0));
  link(1, 0).send(ack, nullptr, nullptr);
  fabric_->step(1);
  EXPECT_TRUE(link(1, 0).status().ok());
  EXPECT_EQ(link(1, 0).sent(), 1u);

  ASSERT_TRUE(link(1, 0).can_send(8));
  const std::vector<std::byte> payload = pattern(1, 8);
  link(1, 0).send(data_header(1, 8), payload.data(), nullptr);
  fabric_->step(1);
  EXPECT_EQ(link(1, 0).status().code(), StatusCode::kPeerLost);
  EXPECT_NE(link(1, 0).status().message().find("rank 0"), std::string::npos)
      << link(1, 0).status().message();
  EXPECT_NE(link(1, 0).status().message().find("closed"), std::string::npos);
  EXPECT_EQ(link(1, 0).sent(), 2u);
  EXPECT_FALSE(link(1, 0).can_send(0));
}

TEST_P(LinkTest, BothMayCloseAtOnce) {
  make(2);
  Feeder feeder(&link(0, 1));
  ASSERT_TRUE(pump([&] { return feeder.send(8); }));
  link(0, 1).close();
  link(1, 0).close();
  link(1, 0).close();
  Arrival arrival;
  EXPECT_FALSE(link(0, 1).receive(&arrival));
  EXPECT_FALSE(link(0, 1).can_send(0));
  EXPECT_TRUE(link(0, 1).status().ok());
}

TEST_P(LinkTest, TakesAMessageOfEveryType) {
  make(2);
  const std::string text = "rank 0: something went wrong, and this is a long text about it";
  const auto* bytes = reinterpret_cast<const std::byte*>(text.data());
  ASSERT_TRUE(pump([&] { return link(0, 1).can_send(text.size()); }));
  for (int type = 1; type <= 6; ++type) {
    wire::Header header;
    header.type = static_cast<wire::MessageType>(type);
    if (header.type == wire::MessageType::kAbort) {
      header.payload_bytes = static_cast<uint32_t>(text.size());
      header.message_bytes = text.size();
    }
    ASSERT_TRUE(pump([&] { return link(0, 1).can_send(header.payload_bytes); }));
    link(0, 1).send(header, bytes, nullptr);
  }
  for (int type = 1; type <= 6; ++type) {
    Arrival arrival;
    ASSERT_TRUE(pump([&] { return link(1, 0).receive(&arrival); }));
    EXPECT_EQ(static_cast<int>(arrival.header.type), type);
    if (arrival.header.type == wire::MessageType::kAbort) {
      EXPECT_EQ(std::memcmp(arrival.data, text.data(), text.size()), 0);
      link(1, 0).release(arrival.token);
    }
  }
}

}  // namespace
}  // namespace ciuic::transport
