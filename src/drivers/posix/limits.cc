// SPDX-License-Identifier: Apache-2.0
// limits.cc: getrlimit, and what /proc and the control group say.

#include "drivers/posix/limits.h"

#include <dirent.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <sstream>
#include <system_error>

#include "drivers/posix/process.h"

namespace ciuic::posix {

// How many are open of those below `limit`, which is a limit of numbers: some above may have been
// inherited. None where the table cannot be read, most likely because no descriptor is left for it.
static std::optional<size_t> open_descriptors(rlim_t limit) {
  DIR* table = ::opendir("/proc/self/fd");
  if (table == nullptr) return std::nullopt;
  size_t open = 0;
  while (const dirent* entry = ::readdir(table)) {
    const int fd = std::isdigit(static_cast<unsigned char>(entry->d_name[0])) != 0
                       ? std::atoi(entry->d_name)
                       : -1;
    if (fd >= 0 && fd != ::dirfd(table) && static_cast<rlim_t>(fd) < limit) ++open;
  }
  ::closedir(table);
  return open;
}

static rlimit limit_of(int resource) {
  rlimit limit{RLIM_INFINITY, RLIM_INFINITY};
  getrlimit(static_cast<__rlimit_resource_t>(resource), &limit);
  return limit;
}

size_t room_for_descriptors(size_t wanted) {
  rlimit limit = limit_of(RLIMIT_NOFILE);
  const size_t open = open_descriptors(limit.rlim_cur).value_or(limit.rlim_cur);
  const rlim_t needed = open + wanted;
  if (limit.rlim_cur < needed && limit.rlim_cur < limit.rlim_max) {
    const rlimit raised{std::min(needed, limit.rlim_max), limit.rlim_max};
    if (setrlimit(RLIMIT_NOFILE, &raised) == 0) limit = raised;
  }
  return limit.rlim_cur > open ? limit.rlim_cur - open : 0;
}

std::string descriptor_advice() {
  const rlimit limit = limit_of(RLIMIT_NOFILE);
  const std::optional<size_t> open = open_descriptors(limit.rlim_cur);
  const std::string count = open ? std::to_string(*open) : "all its";
  return fmt::format(
      "this process has {} descriptors open, and RLIMIT_NOFILE allows {} (hard limit {}). More are "
      "allowed by `ulimit -n` before the start, up to the hard limit; that one by "
      "/etc/security/limits.conf, LimitNOFILE= of systemd or --ulimit nofile= of docker",
      count, limit.rlim_cur, limit.rlim_max);
}

std::string open_files_advice() {
  const Result<std::string> text = read_file("/proc/sys/fs/file-nr");
  std::istringstream counts(text.ok() ? *text : std::string());
  std::string open = "as many files open as it allows";
  uint64_t used = 0;
  uint64_t unused = 0;
  uint64_t most = 0;
  if (counts >> used >> unused >> most) {
    open = fmt::format("{} files open, and it allows {}", used - std::min(used, unused), most);
  }
  return fmt::format(
      "all processes of the machine together have {}. More are allowed by `sysctl -w "
      "fs.file-max=...`, as root",
      open);
}

// The number after `name` in a file of lines "Name:   123 kB", in bytes.
static std::optional<uint64_t> bytes_in(const std::string& path, const std::string& name) {
  Result<std::string> text = read_file(path);
  if (!text.ok()) return std::nullopt;
  std::istringstream lines(*text);
  std::string line;
  while (std::getline(lines, line)) {
    if (!line.starts_with(name + ":")) continue;
    std::istringstream fields(line.substr(name.size() + 1));
    uint64_t kib = 0;
    if (fields >> kib) return kib * 1024;
  }
  return std::nullopt;
}

std::string memory_advice() {
  std::string text = "the machine has ";
  const auto available = bytes_in("/proc/meminfo", "MemAvailable");
  text += available ? fmt::format("{} bytes available", *available) : "too little memory";
  const rlimit space = limit_of(RLIMIT_AS);
  if (space.rlim_cur != RLIM_INFINITY) {
    const auto used = bytes_in("/proc/self/status", "VmSize");
    text += fmt::format(
        ", and RLIMIT_AS (ulimit -v) allows this process {} bytes of address space, of which {} "
        "are used",
        space.rlim_cur, used ? std::to_string(*used) : "most");
  }
  const rlimit file = limit_of(RLIMIT_FSIZE);
  if (file.rlim_cur != RLIM_INFINITY) {
    text +=
        fmt::format("; RLIMIT_FSIZE (ulimit -f) allows {} bytes of a file, which shared memory is",
                    file.rlim_cur);
  }
  // The limit of version 2 control groups, as a container sees its own.
  Result<std::string> group = read_file("/sys/fs/cgroup/memory.max", 64);
  if (group.ok() && !group->empty() && !group->starts_with("max")) {
    text += fmt::format("; its control group (memory.max) allows {} bytes",
                        group->substr(0, group->find('\n')));
  }
  return text;
}

// The number in a control group's file; none where it says "max", or is not there.
static std::optional<uint64_t> bytes_of_group(const std::string& name) {
  Result<std::string> text = read_file("/sys/fs/cgroup/" + name, 64);
  if (!text.ok()) return std::nullopt;
  std::istringstream fields(*text);
  uint64_t bytes = 0;
  if (fields >> bytes) return bytes;
  return std::nullopt;
}

size_t available_memory() {
  uint64_t available = bytes_in("/proc/meminfo", "MemAvailable").value_or(~uint64_t{0});
  const auto most = bytes_of_group("memory.max");
  const auto used = bytes_of_group("memory.current");
  if (most && used) available = std::min(available, *most - std::min(*most, *used));
  return available;
}

Result<std::thread> start_thread(std::function<void()> run) {
  try {
    return std::thread(std::move(run));
  } catch (const std::system_error& error) {
    const rlimit threads = limit_of(RLIMIT_NPROC);
    const std::string most =
        threads.rlim_cur == RLIM_INFINITY ? "any number" : std::to_string(threads.rlim_cur);
    return Status(StatusCode::kResource,
                  fmt::format("the system gives no thread: {}. RLIMIT_NPROC (ulimit -u) allows {} "
                              "of them to this user, a control group's pids.max may allow fewer, "
                              "and each takes a stack; {}",
                              error.what(), most, memory_advice()));
  }
}

}  // namespace ciuic::posix
