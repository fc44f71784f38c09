// SPDX-License-Identifier: Apache-2.0
// two_level_reduce.cc: reduce inside each host to one rank, then up a binomial tree of hosts.
//
//   steps    one send a rank; at most three folds at a host's leader
//   sends    one buffer from each rank but the root, one from each host but the root's
//   use for  several hosts, some with several ranks. 16-bit floats are rounded once a host, then
//            once a hop
//   source   Karonis et al., "Exploiting hierarchy in parallel computer networks to optimize
//            collective operation performance", IPDPS 2000

#include "plan/two_level_reduce.h"

#include "base/assert.h"
#include "plan/hosts.h"
#include "plan/reduce_tree.h"

namespace ciuic::plan {

Plan two_level_reduce(const Layout& layout, int rank, int root) {
  CIUIC_ASSERT(0 <= rank && rank < layout.size() && 0 <= root && root < layout.size());
  Plan plan;
  for (Partition& partition : plan.partitions) partition = {1, Partition::Unit::kSplit};
  const int host = layout.host_of(rank);
  const Members leaders = host_leaders(layout, rank, root);
  if (leaders.ranks[host] != rank) {
    plan.send({leaders.ranks[host]}, input(0));
  } else {
    const BlockRange value =
        add_host_sum(&plan, layout, rank, rank == root ? output(0) : scratch(0));
    add_reduce_tree(&plan, leaders, layout.host_of(root), value);
  }
  plan.finish();
  return plan;
}

}  // namespace ciuic::plan
