// SPDX-License-Identifier: Apache-2.0
// interfaces.h: this host's network interfaces, and which of their addresses peers shall be given.
#pragma once

#include <string>
#include <vector>

#include "ciuic/status.h"

namespace ciuic::topology {

struct Interface {
  std::string name;
  bool up = false;  // switched on
  bool loopback = false;
  bool container = false;              // a bridge, or the near end of a container's cable
  std::vector<std::string> addresses;  // numeric, both families
  // Whether the cable is known to be plugged in: the kernel says so up to a second late.
  bool carrier = true;
};

Result<std::vector<Interface>> list_interfaces();

struct PickRequest {
  std::string ifname;  // CIUIC_SOCKET_IFNAME, see interface_filter.h; empty: any
  std::string source;  // this host's address on the way to the rendezvous; empty: not known
};

struct Rejected {
  std::string what;  // an interface or an address
  std::string why;
};

struct Pick {
  std::vector<std::string> addresses;  // what other machines may try, the best first
  std::vector<std::string> loopback;   // for processes of this machine only
  std::string interface_name;          // of the first address; "lo" where there is no other
  std::vector<Rejected> rejected;
};

// Pure. An address of the interface that leads to the rendezvous comes first, then those of other
// interfaces. Loopback (127.0.1.1 too) never stands among `addresses`, unless `ifname` asks for it.
// Link-local addresses, containers' bridges and interfaces without a carrier are taken only where
// nothing else is left. What `ifname` names is taken whatever else speaks against it, in the order
// of its list, and nothing beside it; what it refuses is not, save that processes of this machine
// still meet over loopback.
// kInvalidArgument: `ifname` is no list, or takes nothing that is here; lists what is.
Result<Pick> pick(const std::vector<Interface>& interfaces, const PickRequest& request);

}  // namespace ciuic::topology
