// SPDX-License-Identifier: Apache-2.0
// process.h: facts about this process and its machine, as the kernel gives them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "ciuic/status.h"

namespace ciuic::posix {

// At most `limit_bytes` of a file, such as one of /proc or /sys.
Result<std::string> read_file(const std::string& path, size_t limit_bytes = 64 * 1024);

Result<std::string> random_bytes(size_t bytes);
Result<uint64_t> random_uint64();

std::string host_name();               // "node7"; "unknown" where the system does not tell
Result<std::string> boot_id();         // differs from boot to boot and machine to machine
Result<uint64_t> network_namespace();  // inode of /proc/self/ns/net
std::vector<int> cpus_in_affinity();   // numbers of the cores that this thread may run on

// When the process `pid` started, in clock ticks since boot: with the pid it names a process for
// good. kSystem: there is none.
Result<uint64_t> start_ticks_of(int pid);

}  // namespace ciuic::posix
