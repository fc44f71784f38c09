// SPDX-License-Identifier: Apache-2.0
// knomial_broadcast.cc: broadcast down a tree of hosts in which each passes on to up to three at
// each of its distances, then inside each host at once.
//
//   steps    at most 3 log4(h) sends, one more that all of a host read, one receive
//   sends    across hosts the root 3 log4(h) buffers, three quarters of the hosts none
//   use for  small buffers across hosts: a message costs less than a latency
//   source   Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations
//            in MPICH", Int. J. High Perform. Comput. Appl. 19 (2005)

#include "plan/knomial_broadcast.h"

#include "base/assert.h"
#include "plan/binomial_tree.h"
#include "plan/hosts.h"
#include "plan/peers.h"

namespace ciuic::plan {

static constexpr int kRadix = 4;

Plan knomial_broadcast(const Layout& layout, int rank, int root) {
  const int size = layout.size();
  CIUIC_ASSERT(0 <= rank && rank < size && 0 <= root && root < size);
  Plan plan;
  plan.partitions[0] = plan.partitions[1] = {1, Partition::Unit::kSplit};
  const int host = layout.host_of(rank);
  const Members leaders = host_leaders(layout, rank, root);
  if (leaders.ranks[host] != rank) {
    plan.receive(leaders.ranks[host], output(0));
  } else {
    const BinomialTree tree = binomial_tree(layout.hosts(), host, layout.host_of(root), kRadix);
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
