// SPDX-License-Identifier: Apache-2.0
// process.cc: facts from /proc and system calls.

#include "drivers/posix/process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sstream>
#include <thread>
#include <vector>

#include "drivers/posix/system_status.h"
#include "drivers/posix/unique_fd.h"

namespace ciuic::posix {

Result<std::string> read_file(const std::string& path, size_t limit_bytes) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return system_status("open " + path, errno);
  std::string text;
  char buffer[4096];
  while (text.size() < limit_bytes) {
    const size_t want = std::min(sizeof buffer, limit_bytes - text.size());
    const ssize_t count = ::read(fd.get(), buffer, want);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return system_status("read " + path, errno);
    if (count == 0) break;
    text.append(buffer, static_cast<size_t>(count));
  }
  return text;
}

Result<std::string> random_bytes(size_t bytes) {
  std::string random(bytes, '\0');
  size_t have = 0;
  while (have < bytes) {
    const ssize_t count = getrandom(random.data() + have, bytes - have, 0);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return system_status("getrandom", errno);
    have += static_cast<size_t>(count);
  }
  return random;
}

Result<uint64_t> random_uint64() {
  Result<std::string> bytes = random_bytes(sizeof(uint64_t));
  if (!bytes.ok()) return bytes.status();
  uint64_t number = 0;
  std::memcpy(&number, bytes->data(), sizeof number);
  return number;
}

std::string host_name() {
  char name[256] = {};
  if (gethostname(name, sizeof name - 1) != 0 || name[0] == '\0') return "unknown";
  return name;
}

Result<std::string> boot_id() {
  Result<std::string> text = read_file("/proc/sys/kernel/random/boot_id", 64);
  if (!text.ok()) return text;
  while (!text->empty() && text->back() == '\n') text->pop_back();
  return text;
}

Result<uint64_t> network_namespace() {
  struct stat facts{};
  if (::stat("/proc/self/ns/net", &facts) != 0)
    return system_status("stat network namespace", errno);
  return static_cast<uint64_t>(facts.st_ino);
}

std::vector<int> cpus_in_affinity() {
  std::vector<int> cpus;
  // A mask of fixed size fails with EINVAL on machines with more cores than it has bits.
  for (int cores = 1024; cores <= 1 << 20; cores *= 4) {
    const size_t bytes = CPU_ALLOC_SIZE(cores);
    std::vector<unsigned char> mask(bytes);
    auto* set = reinterpret_cast<cpu_set_t*>(mask.data());
    if (sched_getaffinity(0, bytes, set) == 0) {
      for (int cpu = 0; cpu < cores; ++cpu) {
        if (CPU_ISSET_S(cpu, bytes, set)) cpus.push_back(cpu);
      }
      return cpus;
    }
    if (errno != EINVAL) break;
  }
  const int online = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  for (int cpu = 0; cpu < online; ++cpu) cpus.push_back(cpu);
  return cpus;
}

Result<uint64_t> start_ticks_of(int pid) {
  const std::string path = fmt::format("/proc/{}/stat", pid);
  Result<std::string> text = read_file(path, 4096);
  if (!text.ok()) return text.status();
  // The second field is the program's name in parentheses, which may hold anything; the start is
  // the 22nd field, the 20th after the last parenthesis.
  const size_t end = text->rfind(')');
  if (end == std::string::npos) return Status(StatusCode::kSystem, path + " has no such form");
  std::istringstream fields(text->substr(end + 1));
  std::string skipped;
  for (int i = 0; i < 19; ++i) fields >> skipped;
  uint64_t ticks = 0;
  if (!(fields >> ticks)) return Status(StatusCode::kSystem, path + " has no such form");
  return ticks;
}

}  // namespace ciuic::posix
