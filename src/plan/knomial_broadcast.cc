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

namespace ciuic::plan {

static constexpr int kRadix = 4;

Plan knomial_broadcast(const Layout& layout, int rank, int root) {
  CIUIC_ASSERT(0 <= rank && rank < layout.size() && 0 <= root && root < layout.size());
  const BinomialTree tree =
      binomial_tree(layout.hosts(), layout.host_of(rank), layout.host_of(root), kRadix);
  return broadcast_between_hosts(layout, rank, root, tree.parent, tree.children);
}

}  // namespace ciuic::plan
