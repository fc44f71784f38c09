// SPDX-License-Identifier: Apache-2.0
// ring_reduce_scatter.cc: reduce-scatter round a ring: each hop adds to what the last one brought.
//
//   steps    n - 1 hops, pipelined by chunks
//   sends    (n - 1) / n of the input from each rank, all of it to its neighbour
//   use for  large blocks across hosts, where each rank shall talk to two others only
//   source   Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of
//            workstations", J. Parallel Distrib. Comput. 69 (2009), the first half

#include "plan/ring_reduce_scatter.h"

#include "base/assert.h"
#include "plan/peers.h"

namespace ciuic::plan {

Plan ring_reduce_scatter(const Layout& layout, int rank) {
  const int size = layout.size();
  CIUIC_ASSERT(0 <= rank && rank < size);
  Plan plan;
  plan.partitions[0] = {size, Partition::Unit::kEach};
  plan.partitions[1] = {1, Partition::Unit::kEach, /*first=*/rank};
  plan.input_offset = -rank;
  if (size == 1) plan.copy(input(0), output(0));
  // Block c sets out at rank c + 1 and gathers one contribution a hop, so that its sum is complete
  // at rank c. What is on its way stands in scratch, a block a hop.
  Partition& passing = plan.partitions[2];
  passing.unit = Partition::Unit::kEach;
  const int prev = around(rank - 1, size);
  for (int hop = 0; hop < size - 1; ++hop) {
    const bool last = hop == size - 2;
    const int coming = around(rank - 2 - hop, size);
    plan.send({around(rank + 1, size)}, hop == 0 ? input(prev) : scratch(hop - 1));
    Step& fold =
        plan.reduce({prev}, /*own_place=*/1, input(coming), last ? output(0) : scratch(hop));
    fold.received_raw = hop == 0;
    fold.final = last;
    if (!last) passing.owners.push_back(coming);
  }
  passing.blocks = static_cast<int>(passing.owners.size());
  plan.finish();
  return plan;
}

}  // namespace ciuic::plan
