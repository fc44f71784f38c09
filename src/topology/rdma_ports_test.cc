// SPDX-License-Identifier: Apache-2.0
// rdma_ports_test.cc: trees of sysfs as hosts have them.

#include "topology/rdma_ports.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace ciuic::topology {
namespace {

using testing::HasSubstr;

class RdmaPorts : public testing::Test {
 protected:
  RdmaPorts() {
    std::string name = (std::filesystem::temp_directory_path() / "ciuic-rdma-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) std::abort();
    root_ = name;
  }
  ~RdmaPorts() override { std::filesystem::remove_all(root_); }

  void put(const std::string& path, const std::string& text) {
    const std::filesystem::path file = root_ + "/sys/class/infiniband/" + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text << "\n";
  }

  void put_port(const std::string& device, const std::string& state, const std::string& layer) {
    put(device + "/ports/1/state", state);
    put(device + "/ports/1/link_layer", layer);
  }

  void put_gid(const std::string& device, int index, const std::string& gid,
               const std::string& type, const std::string& interface) {
    const std::string port = device + "/ports/1/";
    put(port + "gids/" + std::to_string(index), gid);
    put(port + "gid_attrs/types/" + std::to_string(index), type);
    put(port + "gid_attrs/ndevs/" + std::to_string(index), interface);
  }

  // As a card with an IPv4 address has them: two link-local, two mapped.
  void put_usual(const std::string& device, const std::string& interface) {
    put_port(device, "4: ACTIVE", "Ethernet");
    put_gid(device, 0, "fe80:0000:0000:0000:0a94:efff:fe12:3456", "IB/RoCE v1", interface);
    put_gid(device, 1, "fe80:0000:0000:0000:0a94:efff:fe12:3456", "RoCE v2", interface);
    put_gid(device, 2, "0000:0000:0000:0000:0000:ffff:0a01:0203", "IB/RoCE v1", interface);
    put_gid(device, 3, "0000:0000:0000:0000:0000:ffff:0a01:0203", "RoCE v2", interface);
    put(device + "/ports/1/gids/4", "0000:0000:0000:0000:0000:0000:0000:0000");
  }

  std::optional<RocePick> pick(const std::string& device) {
    for (const RdmaPort& port : list_rdma_ports(root_)) {
      if (port.device == device) return pick_roce(port, interfaces_, &why_not_);
    }
    return std::nullopt;
  }

  std::string root_;
  std::string why_not_;
  std::vector<Interface> interfaces_ = {{.name = "eth2", .up = true, .addresses = {}},
                                        {.name = "eth3", .up = false, .addresses = {}}};
};

TEST_F(RdmaPorts, TheRoutedIpv4EntryIsPickedAndNotTheLinkLocalOneBeforeIt) {
  put_usual("mlx5_0", "eth2");
  const auto picked = pick("mlx5_0");
  ASSERT_TRUE(picked) << why_not_;
  EXPECT_EQ(picked->gid.index, 3);
  EXPECT_EQ(picked->address, "10.1.2.3");
  EXPECT_EQ(list_rdma_ports(root_)[0].gids.size(), 4u);
}

TEST_F(RdmaPorts, AnIpv4AddressComesBeforeAGlobalIpv6One) {
  put_port("mlx5_0", "4: ACTIVE", "Ethernet");
  put_gid("mlx5_0", 1, "2001:0db8:0000:0000:0000:0000:0000:0001", "RoCE v2", "eth2");
  EXPECT_EQ(pick("mlx5_0")->address, "2001:db8::1");
  put_gid("mlx5_0", 12, "0000:0000:0000:0000:0000:ffff:0a01:0203", "RoCE v2", "eth2");
  EXPECT_EQ(pick("mlx5_0")->gid.index, 12);
}

TEST_F(RdmaPorts, WhatCannotBeUsedIsNamed) {
  put_usual("mlx5_0", "eth3");
  EXPECT_FALSE(pick("mlx5_0"));
  EXPECT_THAT(why_not_, HasSubstr("eth3 is down"));
  put_usual("mlx5_1", "eth9");
  EXPECT_FALSE(pick("mlx5_1"));
  EXPECT_THAT(why_not_, HasSubstr("eth9 is not in this network namespace"));
  put_port("mlx5_2", "4: ACTIVE", "Ethernet");
  put_gid("mlx5_2", 1, "fe80:0000:0000:0000:0a94:efff:fe12:3456", "RoCE v2", "eth2");
  EXPECT_FALSE(pick("mlx5_2"));
  EXPECT_THAT(why_not_, HasSubstr("link-local; give eth2 an IP address"));
  put_port("mlx5_3", "1: DOWN", "Ethernet");
  EXPECT_FALSE(pick("mlx5_3"));
  EXPECT_THAT(why_not_, HasSubstr("not active"));
  put_port("mlx5_4", "4: ACTIVE", "Ethernet");
  put_gid("mlx5_4", 0, "0000:0000:0000:0000:0000:ffff:0a01:0203", "IB/RoCE v1", "eth2");
  EXPECT_FALSE(pick("mlx5_4"));
  EXPECT_THAT(why_not_, HasSubstr("no GID of RoCE v2"));
}

TEST_F(RdmaPorts, AHostWithoutAnyHasNone) { EXPECT_TRUE(list_rdma_ports(root_).empty()); }

TEST_F(RdmaPorts, GarbageIsPassedOver) {
  put_port("mlx5_0", "4: ACTIVE", "Ethernet");
  put_gid("mlx5_0", 0, "not an address", "RoCE v2", "eth2");
  put("mlx5_0/ports/x/state", "4: ACTIVE");
  put("mlx5_0/ports/1/gids/y", "0000:0000:0000:0000:0000:ffff:0a01:0203");
  ASSERT_EQ(list_rdma_ports(root_).size(), 1u);
  EXPECT_TRUE(list_rdma_ports(root_)[0].gids.empty());
  EXPECT_FALSE(pick("mlx5_0"));
}

}  // namespace
}  // namespace ciuic::topology
