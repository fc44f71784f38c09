// SPDX-License-Identifier: Apache-2.0
// direct_reduce.cc: reduce in which the root folds the buffers of all ranks, in rank order.
//
//   steps    one send a rank; one fold of n operands at the root
//   sends    one buffer from each rank but the root
//   use for  small buffers, or few ranks, on one host: one latency. The root adds up all, see
//            two_shot_reduce.cc. 16-bit floats are rounded once
//   source   Graham and Shipman, "MPI support for multi-core architectures: optimized shared memory
//            collectives", EuroPVM/MPI 2008

#include "plan/direct_reduce.h"

#include "base/assert.h"
#include "plan/peers.h"

namespace ciuic::plan {

Plan direct_reduce(const Layout& layout, int rank, int root) {
  const int size = layout.size();
  CIUIC_ASSERT(0 <= rank && rank < size && 0 <= root && root < size);
  Plan plan;
  plan.partitions[0] = plan.partitions[1] = {1, Partition::Unit::kSplit};
  if (size == 1) {
    plan.copy(input(0), output(0));
  } else if (rank != root) {
    plan.send({root}, input(0));
  } else {
    Step& fold = plan.reduce(others(all_ranks(size), rank), rank, input(0), output(0));
    fold.received_raw = true;
    fold.final = true;
  }
  plan.finish();
  return plan;
}

}  // namespace ciuic::plan
