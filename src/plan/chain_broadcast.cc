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
  const int size = layout.size();
  CIUIC_ASSERT(0 <= rank && rank < size && 0 <= root && root < size);
  Plan plan;
  plan.partitions[0] = plan.partitions[1] = {1, Partition::Unit::kSplit};
  const int host = layout.host_of(rank);
  const int root_host = layout.host_of(root);
  const Members leaders = host_leaders(layout, rank, root);
  if (leaders.ranks[host] != rank) {
    plan.receive(leaders.ranks[host], output(0));
  } else {
    const BlockRange value = rank == root ? input(0) : output(0);
    const int next = around(host + 1, layout.hosts());
    if (rank != root) plan.receive(leaders.ranks[around(host - 1, layout.hosts())], output(0));
    if (next != root_host) plan.send({leaders.ranks[next]}, value);
    const std::vector<int> peers = others(layout.ranks_on(host), rank);
    if (!peers.empty()) plan.send(peers, value);
    if (rank == root) plan.copy(input(0), output(0));
  }
  plan.finish();
  return plan;
}

}  // namespace ciuic::plan
