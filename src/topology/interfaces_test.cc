// SPDX-License-Identifier: Apache-2.0
// interfaces_test.cc: the picker over fixtures of hosts as people have them.

#include "topology/interfaces.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ciuic::topology {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

Interface lo() { return {"lo", true, true, false, {"127.0.0.1", "::1"}}; }
Interface eth(const char* name, std::vector<std::string> addresses) {
  return {name, true, false, false, std::move(addresses)};
}
Interface unplugged(const char* name, std::vector<std::string> addresses) {
  Interface interface = eth(name, std::move(addresses));
  interface.carrier = false;
  return interface;
}
Interface docker() { return {"docker0", true, false, true, {"172.17.0.1"}}; }

struct Case {
  const char* what;
  std::vector<Interface> interfaces;
  PickRequest request;
  std::vector<std::string> addresses;
  const char* interface_name;
};

TEST(Pick, Table) {
  const Case cases[] = {
      {"one card", {lo(), eth("eth0", {"10.0.0.1"})}, {}, {"10.0.0.1"}, "eth0"},
      {"both families, link-local dropped",
       {lo(), eth("eth0", {"10.0.0.1", "fe80::1%eth0", "fd00::1"})},
       {},
       {"10.0.0.1", "fd00::1"},
       "eth0"},
      {"decoy bridge", {lo(), docker(), eth("eth0", {"10.0.0.1"})}, {}, {"10.0.0.1"}, "eth0"},
      {"the route to the rendezvous leads",
       {lo(), eth("eth0", {"10.0.0.1"}), eth("eth1", {"192.168.7.1", "fd07::1"})},
       {"", "fd07::1"},
       {"fd07::1", "192.168.7.1", "10.0.0.1"},
       "eth1"},
      {"the route leads through a bridge",
       {lo(), docker(), eth("eth0", {"10.0.0.1"})},
       {"", "172.17.0.1"},
       {"172.17.0.1", "10.0.0.1"},
       "docker0"},
      {"rendezvous on loopback says nothing",
       {lo(), eth("eth0", {"10.0.0.1"})},
       {"", "127.0.0.1"},
       {"10.0.0.1"},
       "eth0"},
      {"127.0.1.1 of the hosts file",
       {lo(), eth("eth0", {"127.0.1.1", "10.0.0.1"})},
       {"", "127.0.1.1"},
       {"10.0.0.1"},
       "eth0"},
      {"a card that is down",
       {lo(), {"eth0", false, false, false, {"10.0.0.1"}}, eth("eth1", {"10.1.0.1"})},
       {},
       {"10.1.0.1"},
       "eth1"},
      {"no cable",
       {lo(), unplugged("eth0", {"10.0.0.1"}), eth("eth1", {"10.1.0.1"})},
       {},
       {"10.1.0.1"},
       "eth1"},
      {"switched on just now, so that the kernel does not know of the cable yet",
       {lo(), unplugged("eth0", {"10.0.0.1"})},
       {},
       {"10.0.0.1"},
       "eth0"},
      {"nothing but a bridge", {lo(), docker()}, {}, {"172.17.0.1"}, "docker0"},
      {"nothing but link-local",
       {lo(), eth("eth0", {"fe80::1%eth0"})},
       {},
       {"fe80::1%eth0"},
       "eth0"},
      {"no network at all", {lo()}, {}, {}, "lo"},
      {"named card",
       {lo(), eth("eth0", {"10.0.0.1"}), eth("eth1", {"fe80::2%eth1", "10.1.0.1"})},
       {"eth1", "10.0.0.1"},
       {"10.1.0.1", "fe80::2%eth1"},
       "eth1"},
      {"named loopback", {lo(), eth("eth0", {"10.0.0.1"})}, {"lo", ""}, {"127.0.0.1", "::1"}, "lo"},
  };
  for (const Case& c : cases) {
    Result<Pick> result = pick(c.interfaces, c.request);
    ASSERT_TRUE(result.ok()) << c.what << ": " << result.status().message();
    EXPECT_EQ(result->addresses, c.addresses) << c.what;
    EXPECT_EQ(result->interface_name, c.interface_name) << c.what;
    EXPECT_THAT(result->loopback, ElementsAre("127.0.0.1", "::1")) << c.what;
  }
}

TEST(Pick, SaysWhatWasRejectedAndWhy) {
  Result<Pick> result = pick({lo(), docker(), eth("eth0", {"10.0.0.1"}), eth("ib0", {})}, {});
  ASSERT_TRUE(result.ok());
  std::string all;
  for (const Rejected& rejected : result->rejected) {
    all += rejected.what + ": " + rejected.why + "\n";
  }
  EXPECT_THAT(all, testing::HasSubstr("lo: loopback"));
  EXPECT_THAT(all, testing::HasSubstr("docker0 172.17.0.1: a container"));
  EXPECT_THAT(all, testing::HasSubstr("ib0: no address"));
}

// One syntax for what other libraries' users write: NCCL's prefixes, =, ^ and lists, gloo's name,
// an address or a network as Kubernetes users have it.
TEST(Pick, NamedTable) {
  const std::vector<Interface> host = {
      lo(),
      docker(),
      eth("eth0", {"10.0.0.1", "fe80::1%eth0"}),
      eth("eth1", {"10.1.0.1", "fd00:1::1"}),
      eth("eth10", {"192.168.7.1"}),
      {"eth2", false, false, false, {"10.2.0.1"}},
      eth("ib0", {"172.16.0.1"}),
      eth("vlan", {}),
  };
  struct Row {
    const char* ifname;
    std::vector<std::string> addresses;
    const char* interface_name;
  };
  const Row rows[] = {
      {"eth0", {"10.0.0.1", "fe80::1%eth0"}, "eth0"},
      {"eth1", {"10.1.0.1", "fd00:1::1", "192.168.7.1"}, "eth1"},
      {"=eth1", {"10.1.0.1", "fd00:1::1"}, "eth1"},
      {"=eth1,=ib0", {"10.1.0.1", "fd00:1::1", "172.16.0.1"}, "eth1"},
      {"ib,eth0", {"172.16.0.1", "10.0.0.1", "fe80::1%eth0"}, "ib0"},
      {"mlx,ib", {"172.16.0.1"}, "ib0"},
      {"docker0", {"172.17.0.1"}, "docker0"},
      {"lo", {"127.0.0.1", "::1"}, "lo"},
      {"=lo,ib", {"127.0.0.1", "::1", "172.16.0.1"}, "lo"},
      {"10.0.0.0/8", {"10.0.0.1", "10.1.0.1"}, "eth0"},
      {"10.1.0.0/16,ib", {"10.1.0.1", "172.16.0.1"}, "eth1"},
      {"10.0.0.0/15", {"10.0.0.1", "10.1.0.1"}, "eth0"},
      {"10.0.0.0/16", {"10.0.0.1"}, "eth0"},
      {"192.168.0.0/20", {"192.168.7.1"}, "eth10"},
      {"fd00:1::/32", {"fd00:1::1"}, "eth1"},
      {"fe80::1%eth0", {"fe80::1%eth0"}, "eth0"},
      {"10.1.0.1", {"10.1.0.1"}, "eth1"},
      {"fd00:1:0::1", {"fd00:1::1"}, "eth1"},
      {"127.0.0.1", {"127.0.0.1"}, "lo"},
      {"0.0.0.0/0", {"172.17.0.1", "10.0.0.1", "10.1.0.1", "192.168.7.1", "172.16.0.1"}, "docker0"},
      {"eth,^eth1", {"10.0.0.1", "fe80::1%eth0"}, "eth0"},
      {"eth1,^10.1.0.1,fd00::/8", {"192.168.7.1"}, "eth10"},
      {"^docker,lo,ib,eth1", {"10.0.0.1"}, "eth0"},
      {"^=eth1,docker,lo", {"10.0.0.1", "192.168.7.1", "172.16.0.1"}, "eth0"},
      {"^=eth1,^docker,^lo", {"10.0.0.1", "192.168.7.1", "172.16.0.1"}, "eth0"},
      {"^10.0.0.0/8,fd00::/8,192.168.7.1", {"172.16.0.1"}, "ib0"},
      {"^eth,ib", {"172.17.0.1"}, "docker0"},
      {"^eth,ib,docker", {}, "lo"},
  };
  for (const Row& row : rows) {
    Result<Pick> result = pick(host, {row.ifname, ""});
    ASSERT_TRUE(result.ok()) << row.ifname << ": " << result.status().message();
    EXPECT_EQ(result->addresses, row.addresses) << row.ifname;
    EXPECT_EQ(result->interface_name, row.interface_name) << row.ifname;
    EXPECT_THAT(result->loopback, ElementsAre("127.0.0.1", "::1")) << row.ifname;
  }
}

TEST(Pick, WhatNamesNothingListsWhatThereIs) {
  const std::vector<Interface> host = {
      lo(), eth("eth0", {"10.0.0.1"}), {"eth2", false, false, false, {"10.2.0.1"}}, eth("ib0", {})};
  struct Row {
    const char* ifname;
    const char* why;
  };
  const Row rows[] = {
      {"eth7", "no interface or address of this host"},
      {"=eth", "no interface or address of this host"},
      {"10.9.0.0/16,fd00::/8", "no interface or address of this host"},
      {"10.0.0.2", "no interface or address of this host"},
      {"fe80::1%eth0", "no interface or address of this host"},
      {"eth,^eth0,eth2", "no interface or address of this host"},
      {"eth2", "eth2 is down"},
      {"10.2.0.1", "eth2 is down"},
      {"ib", "ib0 has no address"},
  };
  for (const Row& row : rows) {
    Result<Pick> result = pick(host, {row.ifname, ""});
    ASSERT_FALSE(result.ok()) << row.ifname;
    EXPECT_EQ(result.status().code(), StatusCode::kInvalidArgument);
    const std::string text = result.status().message();
    EXPECT_THAT(text, testing::HasSubstr(std::string("CIUIC_SOCKET_IFNAME=") + row.ifname));
    EXPECT_THAT(text, testing::HasSubstr(row.why));
    EXPECT_THAT(text, testing::HasSubstr("lo (127.0.0.1 ::1), eth0 (10.0.0.1), eth2 (down, "
                                         "10.2.0.1), ib0 (no address)"));
  }
}

TEST(Pick, ListsOfNoKnownFormNameTheTermAndTheForms) {
  struct Row {
    const char* ifname;
    const char* term;
  };
  const Row rows[] = {
      {",", "\"\""},
      {"eth0,", "\"\""},
      {"^", "\"\""},
      {"=", "\"\""},
      {"eth0,,ib", "\"\""},
      {"10.0.0.0/33", "\"10.0.0.0/33\""},
      {"10.0.0.0/", "\"10.0.0.0/\""},
      {"10.0.0.0/8x", "\"10.0.0.0/8x\""},
      {"10.0.0.0/-1", "\"10.0.0.0/-1\""},
      {"fd00::/129", "\"fd00::/129\""},
      {"eth0/24", "\"eth0/24\""},
      {"10.0.0", "\"10.0.0\""},
      {"10.0.0.256", "\"10.0.0.256\""},
      {"fd00::1::2", "\"fd00::1::2\""},
      {"eth0 eth1", "\"eth0 eth1\""},
      {"==eth0", "\"=eth0\""},
      {"eth0^", "\"eth0^\""},
      {"\x1b[2J", "\"?[2J\""},
  };
  for (const Row& row : rows) {
    Result<Pick> result = pick({lo(), eth("eth0", {"10.0.0.1"})}, {row.ifname, ""});
    ASSERT_FALSE(result.ok()) << row.ifname;
    EXPECT_EQ(result.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(result.status().message(), testing::HasSubstr(row.term)) << row.ifname;
    EXPECT_THAT(result.status().message(), testing::HasSubstr("^docker,lo (not these)"));
  }
}

TEST(Interfaces, LoopbackIsListed) {
  Result<std::vector<Interface>> interfaces = list_interfaces();
  ASSERT_TRUE(interfaces.ok());
  int loopbacks = 0;
  for (const Interface& interface : *interfaces) loopbacks += interface.loopback ? 1 : 0;
  EXPECT_EQ(loopbacks, 1);
  EXPECT_TRUE(pick(*interfaces, {}).ok());
}

}  // namespace
}  // namespace ciuic::topology
