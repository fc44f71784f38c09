// SPDX-License-Identifier: Apache-2.0
// interfaces.cc: getifaddrs(), and the choice among what it lists.

#include "topology/interfaces.h"

#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <memory>

#include "base/printable.h"
#include "drivers/posix/address.h"
#include "drivers/posix/system_status.h"
#include "topology/interface_filter.h"

namespace ciuic::topology {

// IFF_LOWER_UP of <linux/if.h>, which cannot stand beside <net/if.h>: there is a carrier. That is
// known at once; IFF_RUNNING follows within a second.
static constexpr unsigned kLowerUp = 1u << 16;

static bool is_container(const std::string& name) {
  for (const char* prefix : {"docker", "br-", "virbr", "veth", "cni", "flannel", "cali", "podman",
                             "lxcbr", "lxdbr", "kube-"}) {
    if (name.starts_with(prefix)) return true;
  }
  return ::access(("/sys/class/net/" + name + "/bridge").c_str(), F_OK) == 0;
}

Result<std::vector<Interface>> list_interfaces() {
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) return posix::system_status("getifaddrs", errno);
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> list(first, &freeifaddrs);
  std::vector<Interface> interfaces;
  std::map<std::string, size_t> index;
  for (const ifaddrs* entry = first; entry != nullptr; entry = entry->ifa_next) {
    const auto [place, added] = index.try_emplace(entry->ifa_name, interfaces.size());
    if (added) {
      Interface interface;
      interface.name = entry->ifa_name;
      interface.up = (entry->ifa_flags & IFF_UP) != 0;
      interface.carrier = (entry->ifa_flags & (IFF_RUNNING | kLowerUp)) != 0;
      interface.loopback = (entry->ifa_flags & IFF_LOOPBACK) != 0;
      interface.container = is_container(interface.name);
      interfaces.push_back(std::move(interface));
    }
    if (entry->ifa_addr == nullptr) continue;
    Result<posix::Address> address = posix::from_socket_address(entry->ifa_addr);
    if (address.ok()) interfaces[place->second].addresses.push_back(address->text);
  }
  return interfaces;
}

static bool is_link_local(const std::string& text) {
  return text.starts_with("fe80:") || text.starts_with("169.254.");
}

static bool is_loopback_text(const std::string& text) {
  return posix::Address{text, 0}.is_loopback();
}

static bool holds(const Interface& interface, const std::string& address) {
  return !address.empty() && std::find(interface.addresses.begin(), interface.addresses.end(),
                                       address) != interface.addresses.end();
}

static Status nothing_taken(const std::vector<Interface>& interfaces, const std::string& ifname,
                            const std::string& why) {
  std::string names;
  for (const Interface& interface : interfaces) {
    names += fmt::format(
        "{}{} ({}{})", names.empty() ? "" : ", ", interface.name, interface.up ? "" : "down, ",
        interface.addresses.empty() ? "no address"
                                    : fmt::to_string(fmt::join(interface.addresses, " ")));
  }
  return Status(
      StatusCode::kInvalidArgument,
      fmt::format("CIUIC_SOCKET_IFNAME={}: {}; there are: {}", printable(ifname, 256), why, names));
}

// What the list names, whatever else speaks against it.
static Result<Pick> pick_named(const std::vector<Interface>& interfaces, const std::string& ifname,
                               const InterfaceFilter& filter) {
  struct Taken {
    std::pair<size_t, bool> rank;  // place in the list, link-local ones last
    std::string address;
    const Interface* interface = nullptr;
  };
  std::vector<Taken> all;
  Pick result;
  std::string why = "no interface or address of this host is named by it";
  for (const Interface& interface : interfaces) {
    bool any = false;
    for (const std::string& address : interface.addresses) {
      const auto place = filter.place_of(interface.name, address);
      if (!place || filter.refuses(interface.name, address)) continue;
      if (interface.up) all.push_back({{*place, is_link_local(address)}, address, &interface});
      if (!interface.up) why = fmt::format("the interface {} is down", interface.name);
      any = interface.up;
    }
    if (interface.addresses.empty() && filter.place_of(interface.name, "")) {
      why = fmt::format("the interface {} has no address", interface.name);
    }
    if (!any) result.rejected.push_back({interface.name, "not in CIUIC_SOCKET_IFNAME=" + ifname});
  }
  if (all.empty()) return nothing_taken(interfaces, ifname, why);
  std::stable_sort(all.begin(), all.end(),
                   [](const Taken& a, const Taken& b) { return a.rank < b.rank; });
  for (Taken& taken : all) result.addresses.push_back(std::move(taken.address));
  result.interface_name = all.front().interface->name;
  return result;
}

// The host as it would be without what the list refuses.
static std::vector<Interface> without_refused(const std::vector<Interface>& interfaces,
                                              const InterfaceFilter& filter,
                                              std::vector<Rejected>* rejected) {
  std::vector<Interface> left;
  for (Interface interface : interfaces) {
    if (!interface.loopback) {
      std::erase_if(interface.addresses, [&](const std::string& address) {
        if (!filter.refuses(interface.name, address)) return false;
        rejected->push_back({interface.name + " " + address, "CIUIC_SOCKET_IFNAME refuses it"});
        return true;
      });
    }
    left.push_back(std::move(interface));
  }
  return left;
}

struct Candidate {
  int rank = 0;  // smaller is better
  std::string address;
  const Interface* interface = nullptr;
};

static constexpr int kOnTheWay = 0;
static constexpr int kPlain = 2;
static constexpr int kLastResort = 4;

// How good the addresses of one interface are, or why it has none.
static void judge(const Interface& interface, const PickRequest& request,
                  std::vector<Candidate>* candidates, Pick* result) {
  if (interface.loopback) {
    for (const std::string& address : interface.addresses) {
      if (interface.up && is_loopback_text(address)) result->loopback.push_back(address);
    }
    result->rejected.push_back({interface.name, "loopback: other hosts cannot reach it"});
    return;
  }
  if (!interface.up || interface.addresses.empty()) {
    result->rejected.push_back({interface.name, interface.up ? "no address" : "down"});
    return;
  }
  const bool on_the_way = holds(interface, request.source);
  for (const std::string& address : interface.addresses) {
    if (is_loopback_text(address)) {
      result->rejected.push_back({address, "loopback: other hosts cannot reach it"});
    } else if (address == request.source) {
      candidates->push_back({kOnTheWay, address, &interface});
    } else if (is_link_local(address) || !interface.carrier ||
               (interface.container && !on_the_way)) {
      candidates->push_back({kLastResort, address, &interface});
    } else {
      candidates->push_back({on_the_way ? kOnTheWay + 1 : kPlain, address, &interface});
    }
  }
}

static const char* why_last_resort(const Candidate& candidate) {
  if (is_link_local(candidate.address)) return "link-local, and others are routable";
  if (!candidate.interface->carrier) return "no carrier, and others have one";
  return "a container's network, and there are others";
}

// The best of what the host has, where nothing was named.
static Pick pick_best(const std::vector<Interface>& interfaces, const PickRequest& request) {
  std::vector<Candidate> candidates;
  Pick result;
  for (const Interface& interface : interfaces) judge(interface, request, &candidates, &result);
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& a, const Candidate& b) { return a.rank < b.rank; });
  const bool last_resort = !candidates.empty() && candidates.front().rank == kLastResort;
  for (const Candidate& candidate : candidates) {
    if (candidate.rank == kLastResort && !last_resort) {
      result.rejected.push_back(
          {candidate.interface->name + " " + candidate.address, why_last_resort(candidate)});
      continue;
    }
    if (result.addresses.empty()) result.interface_name = candidate.interface->name;
    result.addresses.push_back(candidate.address);
  }
  if (result.addresses.empty()) result.interface_name = "lo";
  std::sort(result.loopback.begin(), result.loopback.end());  // 127.0.0.1 before ::1
  return result;
}

Result<Pick> pick(const std::vector<Interface>& interfaces, const PickRequest& request) {
  if (request.ifname.empty()) return pick_best(interfaces, request);
  Result<InterfaceFilter> filter = InterfaceFilter::parse(request.ifname);
  if (!filter.ok()) return filter.status();
  std::vector<Rejected> refused;
  Pick best = pick_best(without_refused(interfaces, *filter, &refused), request);
  if (!filter->names_some()) {
    best.rejected.insert(best.rejected.begin(), refused.begin(), refused.end());
    return best;
  }
  Result<Pick> result = pick_named(interfaces, request.ifname, *filter);
  if (result.ok()) result->loopback = best.loopback;
  return result;
}

}  // namespace ciuic::topology
