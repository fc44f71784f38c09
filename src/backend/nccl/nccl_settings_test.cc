// SPDX-License-Identifier: Apache-2.0
// nccl_settings_test.cc: hosts, and the variables that NCCL should have there.

#include "backend/nccl/nccl_settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace ciuic::backend {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

topology::RdmaPort roce(const std::string& device, int index, const std::string& interface) {
  return {.device = device,
          .active = true,
          .ethernet = true,
          .gids = {{1, "fe80:0000:0000:0000:0a94:efff:fe12:3456", "RoCE v2", interface},
                   {index, "0000:0000:0000:0000:0000:ffff:0a01:0203", "RoCE v2", interface}}};
}

class NcclSettingsTest : public testing::Test {
 protected:
  std::vector<std::string> make() {
    settings_ = nccl_settings(facts_, [this](const char* name) -> std::optional<std::string> {
      const auto found = environment_.find(name);
      if (found == environment_.end()) return std::nullopt;
      return found->second;
    });
    std::vector<std::string> texts;
    for (const NcclVariable& each : settings_.variables) {
      EXPECT_NE(each.why, "");
      texts.push_back(each.name + "=" + each.value + (each.source == "ciuic" ? "" : " (own)"));
    }
    return texts;
  }

  NcclFacts facts_{.buffer_size = 0,
                   .ports = {},
                   .interfaces = {{.name = "eth2", .up = true, .addresses = {}},
                                  {.name = "eth3", .up = true, .addresses = {}}}};
  std::map<std::string, std::string> environment_;
  NcclSettings settings_;
};

TEST_F(NcclSettingsTest, AHostWithoutRdmaIsLeftToNccl) {
  EXPECT_THAT(make(), IsEmpty());
  EXPECT_THAT(settings_.warnings, IsEmpty());
  facts_.buffer_size = 1 << 23;
  EXPECT_THAT(make(), ElementsAre("NCCL_BUFFSIZE=8388608"));
}

TEST_F(NcclSettingsTest, RoceHasItsPortsItsGidItsClassAndItsInterface) {
  facts_.ports = {roce("mlx5_0", 3, "eth2"), roce("mlx5_1", 3, "eth3")};
  EXPECT_THAT(make(),
              ElementsAre("NCCL_IB_DISABLE=0", "NCCL_IB_HCA==mlx5_0:1,mlx5_1:1",
                          "NCCL_IB_GID_INDEX=3", "NCCL_IB_TC=106", "NCCL_SOCKET_IFNAME==eth2"));
  EXPECT_THAT(settings_.warnings, IsEmpty());
}

TEST_F(NcclSettingsTest, WhatTheUserSetStays) {
  facts_.ports = {roce("mlx5_0", 3, "eth2")};
  environment_ = {{"NCCL_IB_GID_INDEX", "5"}, {"NCCL_SOCKET_IFNAME", "eth7"}};
  EXPECT_THAT(make(),
              ElementsAre("NCCL_IB_DISABLE=0", "NCCL_IB_HCA==mlx5_0:1", "NCCL_IB_GID_INDEX=5 (own)",
                          "NCCL_IB_TC=106", "NCCL_SOCKET_IFNAME=eth7 (own)"));
}

TEST_F(NcclSettingsTest, DisablingRdmaWhileRoceIsUpIsNamed) {
  facts_.ports = {roce("mlx5_0", 3, "eth2")};
  environment_ = {{"NCCL_IB_DISABLE", "1"}};
  EXPECT_THAT(make(), testing::Contains("NCCL_IB_DISABLE=1 (own)"));
  EXPECT_THAT(settings_.warnings,
              ElementsAre(HasSubstr("NCCL_IB_DISABLE=1 is set, while RoCE v2")));
  facts_.ports.clear();
  make();
  EXPECT_THAT(settings_.warnings, IsEmpty());  // there is nothing that it disables
}

TEST_F(NcclSettingsTest, PortsThatWantDifferentIndicesAreLeftToNccl) {
  facts_.ports = {roce("mlx5_0", 3, "eth2"), roce("mlx5_1", 5, "eth3")};
  EXPECT_THAT(make(), testing::Not(testing::Contains(HasSubstr("GID_INDEX"))));
  EXPECT_THAT(settings_.warnings, ElementsAre(HasSubstr("NCCL_IB_GID_INDEX is left to NCCL")));
}

TEST_F(NcclSettingsTest, APortWithoutAnAddressIsNamedAndNotTaken) {
  facts_.ports = {roce("mlx5_0", 3, "eth9"), roce("mlx5_1", 3, "eth3")};
  EXPECT_THAT(make(), testing::Contains("NCCL_IB_HCA==mlx5_1:1"));
  EXPECT_THAT(settings_.warnings, ElementsAre(HasSubstr("mlx5_0:1 cannot be used")));
}

TEST_F(NcclSettingsTest, InfinibandIsLeftToNccl) {
  facts_.ports = {roce("mlx5_0", 3, "eth2"), {.device = "mlx5_1", .active = true, .gids = {}}};
  EXPECT_THAT(make(), IsEmpty());
}

TEST_F(NcclSettingsTest, TheReportIsJson) {
  facts_.buffer_size = 4096;
  environment_ = {{"NCCL_BUFFSIZE", "1\"2"}};
  make();
  EXPECT_EQ(
      settings_.to_json(),
      "\"settings\":[{\"name\":\"NCCL_BUFFSIZE\",\"value\":\"1\\\"2\",\"why\":\"the environment "
      "has it\",\"source\":\"environment\"}],\"warnings\":[]");
}

}  // namespace
}  // namespace ciuic::backend
