// SPDX-License-Identifier: Apache-2.0
// one_shot_all_reduce.cc: all-reduce in which every rank shows its whole buffer to all others, and
// adds all of them up itself, in rank order.
//
//   steps    3: one send that n - 1 ranks read, one fold of n operands, one copy
//   sends    one buffer from each rank, written once over shared memory; n - 1 times over TCP
//   use for  small buffers within a host: one latency. 16-bit floats are rounded once
//   source   the "flat" form in Graham and Shipman, "MPI support for multi-core architectures:
//            optimized shared memory collectives", EuroPVM/MPI 2008
//
// The fold goes to scratch, since in place the output is what peers may still be reading: with
// nothing buffered between two ranks, each would wait for the other to have read it.

#include "plan/one_shot_all_reduce.h"

#include "base/assert.h"
#include "plan/peers.h"

namespace ciuic::plan {

Plan one_shot_all_reduce(const Layout& layout, int rank) {
  const int size = layout.size();
  CIUIC_ASSERT(0 <= rank && rank < size);
  Plan plan;
  for (Partition& partition : plan.partitions) partition = {1, Partition::Unit::kSplit};
  if (size == 1) {
    plan.copy(input(0), output(0));
  } else {
    const std::vector<int> peers = others(all_ranks(size), rank);
    plan.send(peers, input(0));
    Step& fold = plan.reduce(peers, /*own_place=*/rank, input(0), scratch(0));
    fold.received_raw = true;
    fold.final = true;
    plan.copy(scratch(0), output(0));
  }
  plan.finish();
  return plan;
}

}  // namespace ciuic::plan
