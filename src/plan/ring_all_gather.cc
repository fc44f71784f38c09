// SPDX-License-Identifier: Apache-2.0
// ring_all_gather.cc: all-gather round a ring: each hop passes on what the last one brought.
//
//   steps    n - 1 hops, pipelined by chunks
//   sends    n - 1 blocks from each rank, each to its neighbour
//   use for  large blocks across hosts
//   source   Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations
//            in MPICH", Int. J. High Perform. Comput. Appl. 19 (2005)

#include "plan/ring_all_gather.h"

#include "base/assert.h"
#include "plan/peers.h"

namespace ciuic::plan {

Plan ring_all_gather(const Layout& layout, int rank) {
  const int size = layout.size();
  CIUIC_ASSERT(0 <= rank && rank < size);
  Plan plan;
  plan.partitions[0] = {1, Partition::Unit::kEach, /*first=*/rank};
  plan.partitions[1] = {size, Partition::Unit::kEach};
  plan.input_offset = rank;
  for (int hop = 0; hop < size - 1; ++hop) {
    const int leaving = around(rank - hop, size);
    const int coming = around(rank - hop - 1, size);
    plan.send({around(rank + 1, size)}, hop == 0 ? input(0) : output(leaving));
    plan.receive(around(rank - 1, size), output(coming));
  }
  plan.copy(input(0), output(rank));
  plan.finish();
  return plan;
}

}  // namespace ciuic::plan
