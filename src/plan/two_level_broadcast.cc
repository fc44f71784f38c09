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

namespace ciuic::plan {

Plan two_level_broadcast(const Layout& layout, int rank, int root) {
  CIUIC_ASSERT(0 <= rank && rank < layout.size() && 0 <= root && root < layout.size());
  const BinomialTree tree =
      binomial_tree(layout.hosts(), layout.host_of(rank), layout.host_of(root));
  return broadcast_between_hosts(layout, rank, root, tree.parent, tree.children);
}

}  // namespace ciuic::plan
