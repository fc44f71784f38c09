// SPDX-License-Identifier: Apache-2.0
// two_shot_reduce.cc: reduce in which rank j adds up block j of all ranks, in rank order, and sends
// the result to the root.
//
//   steps    n - 1 sends of a block, one fold of n operands, one send; at the root n - 1 receives
//   sends    one buffer from each rank, (n - 1) / n of it from the root
//   use for  large buffers on one host with more than three ranks: the root copies and adds up
//            about three buffers, in direct_reduce.cc all n. 16-bit floats are rounded once
//   source   Rabenseifner, "Optimization of collective reduction operations", ICCS 2004

#include "plan/two_shot_reduce.h"

#include "base/assert.h"
#include "plan/peers.h"

namespace ciuic::plan {

Plan two_shot_reduce(const Layout& layout, int rank, int root) {
  const int size = layout.size();
  CIUIC_ASSERT(0 <= rank && rank < size && 0 <= root && root < size);
  Plan plan;
  for (Partition& partition : plan.partitions) partition = {size, Partition::Unit::kSplit};
  if (size == 1) {
    plan.copy(input(0), output(0));
  } else {
    for (int distance = 1; distance < size; ++distance) {
      const int owner = around(rank + distance, size);
      plan.send({owner}, input(owner));
    }
    const BlockRange sum = rank == root ? output(rank) : scratch(rank);
    Step& fold = plan.reduce(others(all_ranks(size), rank), rank, input(rank), sum);
    fold.received_raw = true;
    fold.final = true;
    if (rank != root) plan.send({root}, sum, /*lane=*/1);
    for (int distance = 1; rank == root && distance < size; ++distance) {
      const int owner = around(rank - distance, size);
      plan.receive(owner, output(owner), /*lane=*/1);
    }
  }
  plan.finish();
  return plan;
}

}  // namespace ciuic::plan
