// SPDX-License-Identifier: Apache-2.0
// direct_all_gather.cc: all-gather in which every rank shows its block to all others at once.
//
//   steps    one send that n - 1 ranks read, n - 1 receives, one copy
//   sends    one block from each rank, written once over shared memory; n - 1 times over TCP
//   use for  one host; small blocks anywhere: one latency
//   source   Graham and Shipman, "MPI support for multi-core architectures: optimized shared memory
//            collectives", EuroPVM/MPI 2008

#include "plan/direct_all_gather.h"

#include "base/assert.h"
#include "plan/peers.h"

namespace ciuic::plan {

Plan direct_all_gather(const Layout& layout, int rank) {
  const int size = layout.size();
  CIUIC_ASSERT(0 <= rank && rank < size);
  Plan plan;
  plan.partitions[0] = {1, Partition::Unit::kEach, /*first=*/rank};
  plan.partitions[1] = {size, Partition::Unit::kEach};
  plan.input_offset = rank;
  if (size > 1) plan.send(others(all_ranks(size), rank), input(0));
  plan.copy(input(0), output(rank));
  for (int distance = 1; distance < size; ++distance) {
    const int owner = around(rank - distance, size);
    plan.receive(owner, output(owner));
  }
  plan.finish();
  return plan;
}

}  // namespace ciuic::plan
