// SPDX-License-Identifier: Apache-2.0
// listening_test.cc: ranges of ports, and what is advertised for them.

#include "bootstrap/listening.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bootstrap/exchange_fixture.h"
#include "bootstrap/invitation.h"
#include "bootstrap/memory_store.h"
#include "bootstrap/tcp_store.h"
#include "drivers/posix/socket.h"

namespace ciuic::bootstrap {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::Le;
using Addresses = std::vector<posix::Address>;

constexpr PortRange kRange{20000, 20099};

TEST(Listening, ReadsWhatIsAdvertised) {
  struct Case {
    const char* text;
    PortRange ports;
    posix::Address advertised;
  };
  const Case cases[] = {
      {"", {}, {"", 0}},
      {"1.2.3.4", {}, {"1.2.3.4", 0}},
      {"1.2.3.4", kRange, {"1.2.3.4", 0}},
      {"1.2.3.4:30000", kRange, {"1.2.3.4", 30000}},
      {"1.2.3.4:65436", kRange, {"1.2.3.4", 65436}},
      {"fd00:0::1", {}, {"fd00::1", 0}},
      {"[fd00::1]:30000", kRange, {"fd00::1", 30000}},
  };
  for (const Case& c : cases) {
    Result<Listening> listening = Listening::from(c.text, c.ports);
    ASSERT_TRUE(listening.ok()) << c.text << ": " << listening.status().message();
    EXPECT_EQ(listening->advertised, c.advertised) << c.text;
    EXPECT_EQ(listening->ports, c.ports);
  }
  const std::pair<const char*, const char*> wrong[] = {
      {"1.2.3.4:30000", "CIUIC_PORT_RANGE, which is not set"},
      {"1.2.3", "neither a numeric address"},
      {"0.0.0.0", "neither a numeric address"},
      {"node7", "neither a numeric address"},
      {"node7:30000", "neither a numeric address"},
      {"1.2.3.4:", "neither a numeric address"},
      {"1.2.3.4:0", "neither a numeric address"},
      {"1.2.3.4:x", "neither a numeric address"},
      {"\x1b[2J", "=?[2J: neither"},
  };
  for (const auto& [text, why] : wrong) {
    Result<Listening> listening = Listening::from(text, {});
    ASSERT_FALSE(listening.ok()) << text;
    EXPECT_EQ(listening.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(listening.status().message(),
                AllOf(HasSubstr("CIUIC_ADVERTISE_ADDRESS="), HasSubstr(why)));
  }
  EXPECT_THAT(Listening::from("1.2.3.4:65437", kRange).status().message(),
              HasSubstr("the 100 ports of CIUIC_PORT_RANGE=20000-20099 have no room there"));
}

TEST(Listening, AdvertisesBeforeItsOwn) {
  const Addresses own = {{"fd00::7", 20004}, {"10.0.0.7", 20003}};
  struct Case {
    const char* advertised;
    posix::Address first;
  };
  const Case cases[] = {
      {"1.2.3.4", {"1.2.3.4", 20003}},  // of its own family
      {"1.2.3.4:30000", {"1.2.3.4", 30003}},
      {"2001:db8::1", {"2001:db8::1", 20004}},
      {"[2001:db8::1]:1000", {"2001:db8::1", 1004}},
  };
  for (const Case& c : cases) {
    Addresses at = own;
    advertise(*Listening::from(c.advertised, kRange), &at);
    EXPECT_THAT(at, ElementsAre(c.first, own[0], own[1])) << c.advertised;
  }
  Addresses none;
  advertise(*Listening::from("1.2.3.4", {}), &none);
  EXPECT_TRUE(none.empty());
  Addresses at = own;
  advertise(Listening(), &at);
  EXPECT_EQ(at, own);
}

TEST(Listening, AnAddressOfItsOwnComesFirst) {
  Listening listening = *Listening::from("10.0.0.7", {});
  std::vector<std::string> texts = {"10.0.0.5", "10.0.0.6", "10.0.0.7", "10.0.0.8"};
  prefer_own(&listening, &texts);
  EXPECT_THAT(texts, ElementsAre("10.0.0.7", "10.0.0.5", "10.0.0.6", "10.0.0.8"));
  EXPECT_EQ(listening.advertised.text, "");
}

TEST(Listening, WhatCannotBeListenedAtIsLeftOut) {
  std::vector<posix::UniqueFd> listeners;
  Addresses at;
  EXPECT_TRUE(listen_at_all({"192.0.2.77", "127.0.0.1"}, {}, &listeners, &at).ok());
  ASSERT_EQ(at.size(), 1u);
  EXPECT_EQ(at[0], *posix::local_address(listeners[0].get()));
  EXPECT_FALSE(listen_at_all({"192.0.2.77"}, {}, &listeners, &at).ok());
  EXPECT_TRUE(listen_at_all({}, {}, &listeners, &at).ok());
}

// A wide range of the ports that no system gives out by itself, so that it is not full by chance.
constexpr PortRange kWide{20000, 29999};

TEST(Listening, EveryListenerOfAJoinKeepsToTheRange) {
  const std::string secret(32, 's');
  auto server = std::move(*TcpStoreServer::start({"127.0.0.1", 0}, secret, kWide));
  EXPECT_THAT(server->port(), AllOf(Ge(kWide.first), Le(kWide.last)));

  Listening listening{.ports = kWide, .advertised = {"127.0.0.9", 0}};
  std::vector<posix::UniqueFd> listeners;
  Addresses at;
  ASSERT_TRUE(listen_at_all({"127.0.0.1", "127.0.0.2"}, listening, &listeners, &at).ok());
  for (const posix::Address& address : at) {
    EXPECT_THAT(address.port, AllOf(Ge(kWide.first), Le(kWide.last)));
  }
  // Rank 0's invitation stands in the store until all have come.
  ExchangeOptions options = testing::options_for(20'000);
  options.listening = listening;
  auto store = std::make_shared<MemoryStore>();
  testing::run_threads(2, [&](int rank) {
    if (rank == 1) {
      MeetingPlace place(store.get(), options.group_name);
      Result<Invitation> invitation = place.read(1, 20'000);
      ASSERT_TRUE(invitation.ok()) << invitation.status().message();
      ASSERT_EQ(invitation->loopback.size(), 1u);
      EXPECT_THAT(invitation->loopback[0].port, AllOf(Ge(kWide.first), Le(kWide.last)));
    }
    auto joined = exchange_cards(store.get(), testing::card_for(rank, 2), options);
    EXPECT_TRUE(joined.ok()) << joined.status().message();
  });
}

TEST(Listening, RunningOutOfPortsNamesTheRange) {
  // One port, held here, and told to a rank 0 as all there is.
  const posix::UniqueFd holder = std::move(*posix::listen_at({"127.0.0.1", 0}));
  const uint16_t port = posix::local_address(holder.get())->port;
  ExchangeOptions options = testing::options_for(20'000);
  options.listening.ports = {port, port};
  MemoryStore store;
  auto joined = exchange_cards(&store, testing::card_for(0, 2), options);
  EXPECT_EQ(joined.status().code(), StatusCode::kResource);
  EXPECT_THAT(joined.status().message(),
              HasSubstr(fmt::format("CIUIC_PORT_RANGE={0}-{0} is free", port)));
  auto server = TcpStoreServer::start({"127.0.0.1", 0}, std::string(32, 's'), {port, port});
  EXPECT_THAT(server.status().message(), HasSubstr("CIUIC_PORT_RANGE"));
}

}  // namespace
}  // namespace ciuic::bootstrap
