// SPDX-License-Identifier: Apache-2.0
// direct_reduce_scatter.cc: reduce-scatter in which every rank sends each other its block, and
// folds its own block of all ranks in rank order.
//
//   steps    n - 1 sends of a block, one fold of n operands
//   sends    (n - 1) / n of the input from each rank, the least that any algorithm can do
//   use for  one host, any size; small blocks anywhere: one latency. 16-bit floats are rounded once
//   source   the pairwise exchange in Thakur, Rabenseifner and Gropp, "Optimization of collective
//            communication operations in MPICH", Int. J. High Perform. Comput. Appl. 19 (2005)

#include "plan/direct_reduce_scatter.h"

#include "base/assert.h"
#include "plan/peers.h"

namespace ciuic::plan {

Plan direct_reduce_scatter(const Layout& layout, int rank) {
  const int size = layout.size();
  CIUIC_ASSERT(0 <= rank && rank < size);
  Plan plan;
  plan.partitions[0] = {size, Partition::Unit::kEach};
  plan.partitions[1] = {1, Partition::Unit::kEach, /*first=*/rank};
  plan.input_offset = -rank;
  if (size == 1) {
    plan.copy(input(0), output(0));
  } else {
    // Ranks begin with different peers, or all would send to rank 0 first.
    for (int distance = 1; distance < size; ++distance) {
      const int owner = around(rank + distance, size);
      plan.send({owner}, input(owner));
    }
    Step& fold =
        plan.reduce(others(all_ranks(size), rank), /*own_place=*/rank, input(rank), output(0));
    fold.received_raw = true;
    fold.final = true;
  }
  plan.finish();
  return plan;
}

}  // namespace ciuic::plan
