// SPDX-License-Identifier: Apache-2.0
// chain_reduce.cc: reduce inside each host to one rank, then along a chain of hosts that ends at
// the root, pipelined by chunks.
//
//   steps    one send a rank; at most two folds at a host's leader
//   sends    one buffer from each rank but the root; across hosts one from each host but that of
//            the root, which receives one
//   use for  large buffers across hosts. 16-bit floats are rounded once a host, then once a hop
//   source   the pipeline in Pjesivac-Grbovic et al., "Performance analysis of MPI collective
//            operations", Cluster Comput. 10 (2007)

#include "plan/chain_reduce.h"

#include "base/assert.h"
#include "plan/hosts.h"
#include "plan/peers.h"

namespace ciuic::plan {

Plan chain_reduce(const Layout& layout, int rank, int root) {
  const int size = layout.size();
  CIUIC_ASSERT(0 <= rank && rank < size && 0 <= root && root < size);
  Plan plan;
  for (Partition& partition : plan.partitions) partition = {1, Partition::Unit::kSplit};
  const int host = layout.host_of(rank);
  const int root_host = layout.host_of(root);
  const Members leaders = host_leaders(layout, rank, root);
  const BlockRange sum = rank == root ? output(0) : scratch(0);
  if (leaders.ranks[host] != rank) {
    plan.send({leaders.ranks[host]}, input(0));
  } else {
    BlockRange value = add_host_sum(&plan, layout, rank, sum);
    const int prev = around(host - 1, layout.hosts());
    const bool first = prev == root_host;
    if (layout.hosts() > 1 && !first) {
      Step& fold = plan.reduce({leaders.ranks[prev]}, /*own_place=*/1, value, sum);
      fold.received_raw =
          around(prev - 1, layout.hosts()) == root_host && layout.ranks_on(prev).size() == 1;
      fold.final = rank == root;
      value = sum;
    }
    if (rank != root) plan.send({leaders.ranks[around(host + 1, layout.hosts())]}, value);
    if (size == 1) plan.copy(input(0), output(0));
  }
  plan.finish();
  return plan;
}

}  // namespace ciuic::plan
