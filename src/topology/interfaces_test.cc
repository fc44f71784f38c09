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

TEST(Pick, UnknownNameListsWhatThereIs) {
  for (const char* ifname : {"eth7", "^docker0", "10.0.0.1", "eth"}) {
    Result<Pick> result = pick({lo(), eth("eth0", {"10.0.0.1"})}, {ifname, ""});
    ASSERT_FALSE(result.ok()) << ifname;
    EXPECT_EQ(result.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(result.status().message(), testing::HasSubstr("eth0 (10.0.0.1)"));
  }
  EXPECT_FALSE(pick({lo(), eth("ib0", {})}, {"ib0", ""}).ok());
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
