// SPDX-License-Identifier: Apache-2.0
// socket_test.cc: addresses as text, and real sockets on loopback at ports the system chose.

#include "drivers/posix/socket.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <thread>

#include "drivers/posix/no_descriptors.h"
#include "drivers/posix/process.h"

namespace ciuic::posix {
namespace {

const TimeNs kSecond = 1'000'000'000;

TEST(Address, ParsesBothFamilies) {
  for (const char* text : {"10.0.0.1:4711", "[fd00::1]:4711", "[::1]:0", "0.0.0.0:65535"}) {
    Result<Address> address = Address::parse(text);
    ASSERT_TRUE(address.ok()) << address.status().message();
    EXPECT_EQ(address->format(), text);
  }
  EXPECT_EQ(Address::parse("[FD00:0::1]:1")->text, "fd00::1");
  EXPECT_TRUE(Address::parse("127.0.1.1:1")->is_loopback());
  EXPECT_TRUE(Address::parse("[::]:1")->is_any());
}

TEST(Address, ReadsItsOwnScopesBack) {
  // Interface 1 is the loopback one; its name stands for its number where an address is link-local.
  for (const char* text : {"[fe80::1%1]:9", "[ff02::1%1]:9", "[::617%1]:9", "[fd00::1%1]:9"}) {
    const Result<Address> address = Address::parse(text);
    ASSERT_TRUE(address.ok()) << text;
    const Result<Address> again = Address::parse(address->format());
    ASSERT_TRUE(again.ok()) << address->format() << ": " << again.status().message();
    EXPECT_EQ(*again, *address);
  }
}

TEST(Address, RefusesEverythingElse) {
  for (const char* text :
       {"", ":", "10.0.0.1", "10.0.0.1:", "10.0.0.1:65536", "10.0.0.1:-1", "10.0.0.1:8x",
        "fd00::1:4711", "[fd00::1]", "[fd00::1]4711", "[fd00::1:4711", "[]:1", "nohost:1",
        "10.0.0.999:1", ":1", "[10.0.0.1:1"}) {
    Result<Address> address = Address::parse(text);
    ASSERT_FALSE(address.ok()) << text;
    EXPECT_EQ(address.status().code(), StatusCode::kInvalidArgument) << text;
  }
}

TEST(Address, ResolvesNames) {
  Result<std::vector<Address>> addresses = resolve("localhost", 80);
  ASSERT_TRUE(addresses.ok()) << addresses.status().message();
  EXPECT_TRUE(addresses->front().is_loopback());
  EXPECT_EQ(addresses->front().port, 80);
  EXPECT_FALSE(resolve("no.such.host.invalid", 80).ok());
}

TEST(Socket, CarriesBytesBothWays) {
  for (const char* host : {"127.0.0.1", "::1"}) {
    UniqueFd listener = std::move(*listen_at({host, 0}));
    const Address where = *local_address(listener.get());
    EXPECT_NE(where.port, 0);
    UniqueFd client = std::move(*connect_to(where, now_ns() + 10 * kSecond));
    ASSERT_TRUE(*wait_for(listener.get(), POLLIN, now_ns() + 10 * kSecond));
    UniqueFd server = std::move(*accept_from(listener.get()));
    ASSERT_TRUE(server.valid());
    EXPECT_FALSE(accept_from(listener.get())->valid());
    EXPECT_NE(fcntl(server.get(), F_GETFD) & FD_CLOEXEC, 0);
    EXPECT_NE(fcntl(client.get(), F_GETFD) & FD_CLOEXEC, 0);
    EXPECT_EQ(*local_address(client.get()), *peer_address(server.get()));

    std::string sent(3 << 20, 'a');  // more than the buffers hold
    std::string received(sent.size(), '\0');
    std::thread writer([&] {
      EXPECT_TRUE(send_all(client.get(), sent.data(), sent.size(), now_ns() + 60 * kSecond).ok());
    });
    EXPECT_TRUE(
        receive_all(server.get(), received.data(), received.size(), now_ns() + 60 * kSecond).ok());
    writer.join();
    EXPECT_EQ(sent, received);

    char byte = 0;
    EXPECT_EQ(receive_all(server.get(), &byte, 1, now_ns()).code(), StatusCode::kTimeout);
    client.reset();
    EXPECT_EQ(receive_all(server.get(), &byte, 1, now_ns() + 10 * kSecond).code(),
              StatusCode::kPeerLost);
  }
}

TEST(Socket, PortInUseNamesTheHolder) {
  UniqueFd listener = std::move(*listen_at({"127.0.0.1", 0}));
  const Address where = *local_address(listener.get());
  Result<UniqueFd> second = listen_at(where);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), StatusCode::kResource);
  EXPECT_NE(second.status().message().find(fmt::format("process {}", getpid())), std::string::npos)
      << second.status().message();
  EXPECT_NE(second.status().message().find("EADDRINUSE"), std::string::npos);
}

TEST(Socket, ListensWithinARange) {
  // Two ports that are free now; another process may take them, so one looks until it works.
  for (int tries = 0;; ++tries) {
    ASSERT_LT(tries, 100);
    UniqueFd probe = std::move(*listen_at({"127.0.0.1", 0}));
    const uint16_t first = local_address(probe.get())->port;
    probe.reset();
    if (first == UINT16_MAX) continue;
    const PortRange range{first, static_cast<uint16_t>(first + 1)};
    Result<UniqueFd> a = listen_within(range, "127.0.0.1");
    Result<UniqueFd> b = listen_within(range, "127.0.0.1");
    if (!a.ok() || !b.ok()) continue;
    const uint16_t ports[] = {local_address(a->get())->port, local_address(b->get())->port};
    EXPECT_EQ(std::min(ports[0], ports[1]), first);
    EXPECT_EQ(std::max(ports[0], ports[1]), first + 1);
    const Result<UniqueFd> c = listen_within(range, "127.0.0.1");
    EXPECT_EQ(c.status().code(), StatusCode::kResource);
    EXPECT_NE(c.status().message().find(
                  fmt::format("CIUIC_PORT_RANGE={}-{} is free at 127.0.0.1", first, first + 1)),
              std::string::npos)
        << c.status().message();
    b->reset();
    EXPECT_TRUE(listen_within(range, "127.0.0.1").ok());
    return;
  }
}

TEST(Socket, RefusedConnectionIsAnError) {
  Address where;
  {
    UniqueFd listener = std::move(*listen_at({"127.0.0.1", 0}));
    where = *local_address(listener.get());
  }
  Result<UniqueFd> fd = connect_to(where, now_ns() + 10 * kSecond);
  ASSERT_FALSE(fd.ok());
  EXPECT_NE(fd.status().message().find("ECONNREFUSED"), std::string::npos);
}

TEST(Socket, WantsADescriptorOnlyForSomebodyWhoWaits) {
  const UniqueFd listener = std::move(*listen_at({"127.0.0.1", 0}));
  const Address address = *local_address(listener.get());
  NoDescriptors none;
  const Result<UniqueFd> nobody = accept_from(listener.get());
  ASSERT_TRUE(nobody.ok()) << nobody.status().message();
  EXPECT_FALSE(nobody->valid());
  none.spare_one();
  const UniqueFd outside = std::move(*start_connect(address));
  ASSERT_TRUE(*wait_for(outside.get(), POLLOUT, deadline_after(now_ns(), 20'000)));
  EXPECT_EQ(accept_from(listener.get()).status().code(), StatusCode::kResource);
  none.spare_one();
  EXPECT_TRUE(accept_from(listener.get())->valid());
  EXPECT_TRUE(accept_from(listener.get()).ok());
}

TEST(Socket, SourceAddressFollowsTheRoute) {
  Result<Address> source = source_address_towards({"127.0.0.1", 9});
  ASSERT_TRUE(source.ok());
  EXPECT_EQ(source->text, "127.0.0.1");
}

TEST(Process, Facts) {
  EXPECT_EQ(boot_id()->size(), 36u);
  EXPECT_GT(*network_namespace(), 0u);
  EXPECT_FALSE(cpus_in_affinity().empty());
  EXPECT_GT(*start_ticks_of(getpid()), 0u);
  EXPECT_FALSE(start_ticks_of(1 << 30).ok());
  EXPECT_NE(*random_uint64(), *random_uint64());
  EXPECT_EQ(read_file("/proc/self/stat", 3)->size(), 3u);
}

}  // namespace
}  // namespace ciuic::posix
