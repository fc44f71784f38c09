// SPDX-License-Identifier: Apache-2.0
// port_holder.cc: /proc/net/tcp gives the socket's inode, /proc/*/fd the process that has it.

#include "drivers/posix/port_holder.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cctype>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <system_error>

namespace ciuic::posix {

namespace fs = std::filesystem;

// Adds the inodes of the sockets that listen at `port` in one of the kernel's tables.
static void add_listeners(const char* table, uint16_t port, std::set<std::string>* inodes) {
  std::ifstream file(table);
  std::string line;
  std::getline(file, line);  // the heading
  while (std::getline(file, line)) {
    std::istringstream fields(line);
    std::string slot, local, remote, state, queues, timer, retransmits, uid, timeout, inode;
    fields >> slot >> local >> remote >> state >> queues >> timer >> retransmits >> uid >> timeout;
    fields >> inode;
    const size_t colon = local.rfind(':');
    if (!fields || colon == std::string::npos || state != "0A") continue;  // 0A: listening
    if (local.substr(colon + 1) == fmt::format("{:04X}", port)) inodes->insert(inode);
  }
}

static bool holds_one_of(const fs::path& fds, const std::set<std::string>& inodes) {
  std::error_code error;
  for (fs::directory_iterator entry(fds, error), end; !error && entry != end;
       entry.increment(error)) {
    char target[64] = {};
    const ssize_t length = ::readlink(entry->path().c_str(), target, sizeof target - 1);
    const std::string text(target, length > 0 ? static_cast<size_t>(length) : 0);
    if (!text.starts_with("socket:[") || !text.ends_with("]")) continue;
    if (inodes.count(text.substr(8, text.size() - 9)) > 0) return true;
  }
  return false;
}

std::string port_holder(uint16_t port) {
  std::set<std::string> inodes;
  add_listeners("/proc/net/tcp", port, &inodes);
  add_listeners("/proc/net/tcp6", port, &inodes);
  if (inodes.empty()) return "";
  std::error_code error;
  for (fs::directory_iterator entry("/proc", error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string pid = entry->path().filename();
    if (std::isdigit(static_cast<unsigned char>(pid.front())) == 0) continue;
    if (!holds_one_of(entry->path() / "fd", inodes)) continue;
    std::string name;
    std::getline(std::ifstream(entry->path() / "comm") >> std::ws, name);
    return fmt::format("process {} ({})", pid, name);
  }
  return "";
}

}  // namespace ciuic::posix
