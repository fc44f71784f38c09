// SPDX-License-Identifier: Apache-2.0
// host.h: which host this process is on, and how much of it the process may use.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "ciuic/status.h"

namespace ciuic::topology {

struct Host {
  std::string name;
  // Boot id and network namespace. Processes with the same one reach each other over loopback and
  // abstract Unix sockets.
  std::string machine_id;
  // The same, with the boot id replaced by the caller's text where there is one: ranks with the
  // same one are candidates for shared memory.
  std::string host_id;
  int cores = 1;          // that this process may use at once, by affinity and by cgroup quota
  std::vector<int> cpus;  // numbers of those that its affinity allows
  int quota = 0;          // cores that cgroups allow; 0: no quota
  int pid = 0;
  uint64_t start_ticks = 0;  // with pid, names the process for good
};

// `replacement`: CIUIC_HOST_ID's text, or empty.
Result<Host> this_host(const std::string& replacement);

using ReadFile = std::function<Result<std::string>(const std::string& path)>;

// The cores that cgroup quotas (version 1 or 2, of this group and all above it) leave, rounded up;
// 0 where there is no quota. `read` gives the files of /proc and /sys.
int cores_of_quota(const ReadFile& read);

}  // namespace ciuic::topology
