// SPDX-License-Identifier: Apache-2.0
// direct_broadcast.cc: broadcast in which the root shows its buffer to all others at once.
//
//   steps    one send that n - 1 ranks read; one receive
//   sends    the root one buffer over shared memory; n - 1 over TCP
//   use for  one host
//   source   Graham and Shipman, "MPI support for multi-core architectures: optimized shared memory
//            collectives", EuroPVM/MPI 2008

#include "plan/direct_broadcast.h"

#include "base/assert.h"
#include "plan/peers.h"

namespace ciuic::plan {

Plan direct_broadcast(const Layout& layout, int rank, int root) {
  const int size = layout.size();
  CIUIC_ASSERT(0 <= rank && rank < size && 0 <= root && root < size);
  Plan plan;
  plan.partitions[0] = plan.partitions[1] = {1, Partition::Unit::kSplit};
  if (rank != root) {
    plan.receive(root, output(0));
  } else {
    if (size > 1) plan.send(others(all_ranks(size), rank), input(0));
    plan.copy(input(0), output(0));
  }
  plan.finish();
  return plan;
}

}  // namespace ciuic::plan
