// SPDX-License-Identifier: Apache-2.0
// binomial_broadcast.cc: broadcast down a binomial tree, pipelined by chunks.
//
//   steps    at most log2(n) sends and one receive a rank
//   sends    the root log2(n) buffers, half of the ranks none
//   use for  hosts with one rank each
//   source   Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations
//            in MPICH", Int. J. High Perform. Comput. Appl. 19 (2005)

#include "plan/binomial_broadcast.h"

#include "base/assert.h"
#include "plan/binomial_tree.h"

namespace ciuic::plan {

Plan binomial_broadcast(const Layout& layout, int rank, int root) {
  const int size = layout.size();
  CIUIC_ASSERT(0 <= rank && rank < size && 0 <= root && root < size);
  Plan plan;
  plan.partitions[0] = plan.partitions[1] = {1, Partition::Unit::kSplit};
  const BinomialTree tree = binomial_tree(size, rank, root);
  if (rank != root) plan.receive(tree.parent, output(0));
  // The largest subtree first, since it takes longest.
  for (const int child : tree.children) plan.send({child}, rank == root ? input(0) : output(0));
  if (rank == root) plan.copy(input(0), output(0));
  plan.finish();
  return plan;
}

}  // namespace ciuic::plan
