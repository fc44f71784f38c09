// SPDX-License-Identifier: Apache-2.0
// rdma_ports.h: this host's RDMA ports, and by which of its addresses (GIDs) a RoCE port is to be
// used.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "topology/interfaces.h"

namespace ciuic::topology {

struct Gid {
  int index = 0;
  std::string text;       // "0000:0000:0000:0000:0000:ffff:0a00:0001"
  std::string type;       // "RoCE v2", "IB/RoCE v1"
  std::string interface;  // "eth2"
};

struct RdmaPort {
  std::string device;  // "mlx5_0"
  int port = 1;
  bool active = false;
  bool ethernet = false;  // RoCE; else InfiniBand
  std::vector<Gid> gids;  // those that are set, by index
};

// What stands under <root>/sys/class/infiniband; "" is this host. Nothing where there is nothing.
std::vector<RdmaPort> list_rdma_ports(const std::string& root);

struct RocePick {
  std::string device;
  int port = 1;
  Gid gid;
  std::string address;  // "10.0.0.1", "2001:db8::1"
};

// Pure. The GID of an active RoCE port that other hosts can reach: of type RoCE v2, which is
// routed, on an interface that is up and has a carrier; an IPv4 address before a global IPv6 one. A
// link-local GID is never picked, since packets to it time out. `why_not`: where there is none.
std::optional<RocePick> pick_roce(const RdmaPort& port, const std::vector<Interface>& interfaces,
                                  std::string* why_not);

}  // namespace ciuic::topology
