// SPDX-License-Identifier: Apache-2.0
// host.cc: the host's identity and the cores that are left to this process.

#include "topology/host.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <sstream>
#include <vector>

#include "base/printable.h"
#include "drivers/posix/process.h"

namespace ciuic::topology {

// The paths of a cgroup and of all above it: "/a/b", "/a", "". In a container the path may be the
// host's, while the files of the container's own group stand at the top; that is tried too.
static std::vector<std::string> ancestry(std::string path) {
  std::vector<std::string> paths;
  while (!path.empty() && path != "/") {
    paths.push_back(path);
    path.resize(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
  }
  paths.emplace_back();
  return paths;
}

static double number_in(const ReadFile& read, const std::string& path) {
  Result<std::string> text = read(path);
  double number = -1;
  if (!text.ok() || !(std::istringstream(*text) >> number)) return -1;
  return number;
}

// Version 2: "cpu.max" holds "max 100000" or "150000 100000".
static double quota_v2(const ReadFile& read, const std::string& group) {
  Result<std::string> text = read("/sys/fs/cgroup" + group + "/cpu.max");
  double quota = 0;
  double period = 0;
  if (!text.ok() || !(std::istringstream(*text) >> quota >> period)) return -1;
  return period > 0 ? quota / period : -1;
}

static double quota_v1(const ReadFile& read, const std::string& group) {
  for (const char* mount : {"/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct"}) {
    const double quota = number_in(read, mount + group + "/cpu.cfs_quota_us");
    const double period = number_in(read, mount + group + "/cpu.cfs_period_us");
    if (quota > 0 && period > 0) return quota / period;
  }
  return -1;
}

int cores_of_quota(const ReadFile& read) {
  Result<std::string> groups = read("/proc/self/cgroup");
  if (!groups.ok()) return 0;
  double least = 0;
  std::istringstream lines(*groups);
  std::string line;
  while (std::getline(lines, line)) {
    // "0::/path" is version 2; "4:cpu,cpuacct:/path" one of version 1's hierarchies.
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const bool v2 = controllers == ",,";
    if (!v2 && controllers.find(",cpu,") == std::string::npos) continue;
    for (const std::string& group : ancestry(line.substr(second + 1))) {
      const double cores = v2 ? quota_v2(read, group) : quota_v1(read, group);
      if (cores > 0 && (least == 0 || cores < least)) least = cores;
    }
  }
  return static_cast<int>(std::ceil(std::min(least, 1e6)));
}

Result<Host> this_host(const std::string& replacement) {
  Result<std::string> boot = posix::boot_id();
  if (!boot.ok()) return boot.status();
  Result<uint64_t> network = posix::network_namespace();
  if (!network.ok()) return network.status();
  Host host;
  host.name = printable(posix::host_name());
  host.machine_id = fmt::format("{}/{}", *boot, *network);
  host.host_id = fmt::format("{}/{}", replacement.empty() ? *boot : replacement, *network);
  host.cpus = posix::cpus_in_affinity();
  host.cores = static_cast<int>(host.cpus.size());
  host.quota = cores_of_quota([](const std::string& path) { return posix::read_file(path); });
  if (host.quota > 0) host.cores = std::min(host.cores, host.quota);
  host.pid = static_cast<int>(getpid());
  Result<uint64_t> start = posix::start_ticks_of(host.pid);
  if (!start.ok()) return start.status();
  host.start_ticks = *start;
  return host;
}

}  // namespace ciuic::topology
