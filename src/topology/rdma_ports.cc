// SPDX-License-Identifier: Apache-2.0
// rdma_ports.cc: sysfs, and the choice among what it lists.

#include "topology/rdma_ports.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <system_error>

namespace ciuic::topology {

namespace {

namespace fs = std::filesystem;

// The first line; "" where there is none. An entry that is not set cannot be read at all.
std::string line_of(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::vector<std::string> names_in(const fs::path& directory) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator each(directory, error), end; !error && each != end;
       each.increment(error)) {
    names.push_back(each->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::optional<int> number_of(const std::string& text) {
  int number = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || rest != end || number < 0) return std::nullopt;
  return number;
}

// The 16 bytes; none where the text is another, or all are zero.
std::optional<std::array<uint8_t, 16>> bytes_of(const std::string& text) {
  std::array<uint8_t, 16> bytes{};
  if (::inet_pton(AF_INET6, text.c_str(), bytes.data()) != 1) return std::nullopt;
  const auto is_zero = [](uint8_t byte) { return byte == 0; };
  if (std::all_of(bytes.begin(), bytes.end(), is_zero)) return std::nullopt;
  return bytes;
}

std::vector<Gid> gids_of(const fs::path& port) {
  std::vector<Gid> gids;
  for (const std::string& name : names_in(port / "gids")) {
    const std::optional<int> index = number_of(name);
    const std::string text = line_of(port / "gids" / name);
    if (!index || !bytes_of(text)) continue;
    gids.push_back({.index = *index,
                    .text = text,
                    .type = line_of(port / "gid_attrs" / "types" / name),
                    .interface = line_of(port / "gid_attrs" / "ndevs" / name)});
  }
  std::sort(gids.begin(), gids.end(), [](const Gid& a, const Gid& b) { return a.index < b.index; });
  return gids;
}

enum class Scope { kIpv4, kGlobal, kLinkLocal };

Scope scope_of(const std::array<uint8_t, 16>& bytes) {
  static constexpr std::array<uint8_t, 12> kMapped = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  if (bytes[0] == 0xfe && (bytes[1] & 0xc0) == 0x80) return Scope::kLinkLocal;
  if (!std::equal(kMapped.begin(), kMapped.end(), bytes.begin())) return Scope::kGlobal;
  const bool is_link_local = bytes[12] == 169 && bytes[13] == 254;
  return is_link_local ? Scope::kLinkLocal : Scope::kIpv4;
}

std::string address_of(const std::array<uint8_t, 16>& bytes) {
  char text[INET6_ADDRSTRLEN] = {};
  const bool is_ipv4 = scope_of(bytes) == Scope::kIpv4;
  const void* from = is_ipv4 ? bytes.data() + 12 : bytes.data();
  ::inet_ntop(is_ipv4 ? AF_INET : AF_INET6, from, text, sizeof text);
  return text;
}

// Empty where it can be used.
std::string fault_of(const std::string& name, const std::vector<Interface>& interfaces) {
  const auto found =
      std::find_if(interfaces.begin(), interfaces.end(),
                   [&name](const Interface& interface) { return interface.name == name; });
  if (found == interfaces.end()) {
    return fmt::format("its interface {} is not in this network namespace", name);
  }
  if (!found->up) return fmt::format("interface {} is down", name);
  return found->carrier ? "" : fmt::format("interface {} has no carrier", name);
}

}  // namespace

std::vector<RdmaPort> list_rdma_ports(const std::string& root) {
  std::vector<RdmaPort> ports;
  const fs::path all = root + "/sys/class/infiniband";
  for (const std::string& device : names_in(all)) {
    for (const std::string& name : names_in(all / device / "ports")) {
      const std::optional<int> number = number_of(name);
      if (!number) continue;
      const fs::path port = all / device / "ports" / name;
      ports.push_back({.device = device,
                       .port = *number,
                       .active = line_of(port / "state").find("ACTIVE") != std::string::npos,
                       .ethernet = line_of(port / "link_layer") == "Ethernet",
                       .gids = gids_of(port)});
    }
  }
  return ports;
}

std::optional<RocePick> pick_roce(const RdmaPort& port, const std::vector<Interface>& interfaces,
                                  std::string* why_not) {
  if (!port.active) {
    *why_not = "the port is not active";
    return std::nullopt;
  }
  std::optional<RocePick> best;
  Scope best_scope = Scope::kLinkLocal;
  *why_not = "it has no GID of RoCE v2";
  for (const Gid& gid : port.gids) {
    const auto bytes = bytes_of(gid.text);
    if (!bytes || gid.type != "RoCE v2") continue;
    const Scope scope = scope_of(*bytes);
    if (scope == Scope::kLinkLocal) {
      if (!best) {
        *why_not =
            fmt::format("its GIDs of RoCE v2 are link-local; give {} an IP address", gid.interface);
      }
      continue;
    }
    const std::string fault = fault_of(gid.interface, interfaces);
    if (!fault.empty()) {
      if (!best) *why_not = fault;
      continue;
    }
    if (best && best_scope <= scope) continue;
    best = RocePick{port.device, port.port, gid, address_of(*bytes)};
    best_scope = scope;
  }
  return best;
}

}  // namespace ciuic::topology
