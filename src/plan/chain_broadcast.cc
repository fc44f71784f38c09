// SPDX-License-Identifier: Apache-2.0
// chain_broadcast.cc: broadcast along a chain of hosts, pipelined by chunks, and inside each host
// at once.
//
//   steps    one receive, one send to the next host, one that all of a host read
//   sends    across hosts one buffer from each host but the last, the least that any algorithm can
//            do
//   use for  large buffers across hosts: the last host is h - 2 chunks behind the second
//   source   the pipeline in Pjesivac-Grbovic et al., "Performance analysis of MPI collective
//            operations", Cluster Comput. 10 (2007)

#include "plan/chain_broadcast.h"

#include "base/assert.h"
#include "plan/hosts.h"
#include "plan/peers.h"

namespace ciuic::plan {

Plan chain_broadcast(const Layout& layout, int rank, int root) {
  CIUIC_ASSERT(0 <= rank && rank < layout.size() && 0 <= root && root < layout.size());
  const int host = layout.host_of(rank);
  const int next = around(host + 1, layout.hosts());
  std::vector<int> children;
  if (next != layout.host_of(root)) children.push_back(next);
  return broadcast_between_hosts(layout, rank, root, around(host - 1, layout.hosts()), children);
}

}  // namespace ciuic::plan
