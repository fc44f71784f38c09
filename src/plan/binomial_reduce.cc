// SPDX-License-Identifier: Apache-2.0
// binomial_reduce.cc: reduce up a binomial tree, pipelined by chunks.
//
//   steps    at most two folds and one send a rank
//   sends    one buffer from each rank but the root, which receives log2(n)
//   use for  hosts with one rank each
//   source   Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations
//            in MPICH", Int. J. High Perform. Comput. Appl. 19 (2005)

#include "plan/binomial_reduce.h"

#include "base/assert.h"
#include "plan/peers.h"
#include "plan/reduce_tree.h"

namespace ciuic::plan {

Plan binomial_reduce(const Layout& layout, int rank, int root) {
  const int size = layout.size();
  CIUIC_ASSERT(0 <= rank && rank < size && 0 <= root && root < size);
  Plan plan;
  for (Partition& partition : plan.partitions) partition = {1, Partition::Unit::kSplit};
  const Members members = whole_group(size, rank);
  add_reduce_tree(&plan, members, /*root=*/root, input(0));
  plan.finish();
  return plan;
}

}  // namespace ciuic::plan
