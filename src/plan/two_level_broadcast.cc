// SPDX-License-Identifier: Apache-2.0
// two_level_broadcast.cc: broadcast down a binomial tree of hosts, then inside each host at once.
//
//   steps    at most log2(h) sends, one more that all of a host read, one receive
//   sends    across hosts the root's host log2(h) buffers; inside one
//   use for  several hosts, some with several ranks
//   source   Karonis et al., "Exploiting hierarchy in parallel computer networks to optimize
//            collective operation performance", IPDPS 2000

#include "plan/two_level_broadcast.h"

#include "base/assert.h"
#include "plan/binomial_tree.h"
#include "plan/hosts.h"
#include "plan/peers.h"

namespace ciuic::plan {

Plan two_level_broadcast(const Layout& layout, int rank, int root) {
  CIUIC_ASSERT(0 <= rank && rank < layout.size() && 0 <= root && root < layout.size());
  Plan plan;
  plan.partitions[0] = plan.partitions[1] = {1, Partition::Unit::kSplit};
  const int host = layout.host_of(rank);
  const Members leaders = host_leaders(layout, rank, root);
  if (leaders.ranks[host] != rank) {
    plan.receive(leaders.ranks[host], output(0));
  } else {
    const BinomialTree tree = binomial_tree(layout.hosts(), host, layout.host_of(root));
    const BlockRange value = rank == root ? input(0) : output(0);
    if (rank != root) plan.receive(leaders.ranks[tree.parent], output(0));
    for (const int child : tree.children) plan.send({leaders.ranks[child]}, value);
    const std::vector<int> peers = others(layout.ranks_on(host), rank);
    if (!peers.empty()) plan.send(peers, value);
    if (rank == root) plan.copy(input(0), output(0));
  }
  plan.finish();
  return plan;
}

}  // namespace ciuic::plan
