// SPDX-License-Identifier: Apache-2.0
// host_test.cc: the host's id, and cgroup quotas read from fixtures.

#include "topology/host.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <map>

namespace ciuic::topology {
namespace {

int quota_of(const std::map<std::string, std::string>& files) {
  return cores_of_quota([&files](const std::string& path) -> Result<std::string> {
    const auto file = files.find(path);
    if (file == files.end()) return Status(StatusCode::kSystem, "no such file");
    return file->second;
  });
}

TEST(Host, ThisOne) {
  Result<Host> plain = this_host("");
  Result<Host> named = this_host("rack-3");
  ASSERT_TRUE(plain.ok() && named.ok());
  EXPECT_EQ(plain->machine_id, plain->host_id);
  EXPECT_EQ(plain->machine_id, named->machine_id);
  EXPECT_NE(plain->host_id, named->host_id);
  EXPECT_TRUE(named->host_id.starts_with("rack-3/"));
  EXPECT_GE(plain->cores, 1);
  EXPECT_EQ(plain->pid, getpid());
  EXPECT_GT(plain->start_ticks, 0u);
}

TEST(Quota, NoneMeansNoLimit) {
  EXPECT_EQ(quota_of({}), 0);
  EXPECT_EQ(quota_of({{"/proc/self/cgroup", "0::/\n"}}), 0);
  EXPECT_EQ(
      quota_of({{"/proc/self/cgroup", "0::/a\n"}, {"/sys/fs/cgroup/a/cpu.max", "max 100000\n"}}),
      0);
  EXPECT_EQ(quota_of({{"/proc/self/cgroup", "4:cpu:/\n"},
                      {"/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n"},
                      {"/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"}}),
            0);
}

TEST(Quota, VersionTwoTakesTheTightestAncestor) {
  EXPECT_EQ(quota_of({{"/proc/self/cgroup", "0::/a/b\n"},
                      {"/sys/fs/cgroup/a/b/cpu.max", "800000 100000\n"},
                      {"/sys/fs/cgroup/a/cpu.max", "250000 100000\n"}}),
            3);
}

TEST(Quota, ContainerWithoutCgroupNamespace) {
  EXPECT_EQ(quota_of({{"/proc/self/cgroup", "0::/docker/0123\n"},
                      {"/sys/fs/cgroup/cpu.max", "50000 100000\n"}}),
            1);
}

TEST(Quota, VersionOne) {
  EXPECT_EQ(quota_of({{"/proc/self/cgroup", "9:cpuset:/x\n4:cpu,cpuacct:/job\n0::/\n"},
                      {"/sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "400000\n"},
                      {"/sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us", "100000\n"}}),
            4);
}

TEST(Quota, GarbageIsNoLimit) {
  EXPECT_EQ(quota_of({{"/proc/self/cgroup", "\n:\nxx\n0::/a\n"},
                      {"/sys/fs/cgroup/a/cpu.max", "fast please\n"}}),
            0);
}

}  // namespace
}  // namespace ciuic::topology
