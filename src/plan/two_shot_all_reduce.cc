// SPDX-License-Identifier: Apache-2.0
// two_shot_all_reduce.cc: all-reduce in which rank j adds up block j of all ranks, in rank order,
// and shows the result to all others.
//
//   steps    2 n - 1: n - 1 sends of a block, one fold of n operands, one send that n - 1 ranks
//            read, n - 1 receives
//   sends    (n - 1) / n of the buffer and, written once over shared memory, 1 / n of it
//   use for  larger buffers within a host: two latencies, no byte added up twice. 16-bit floats are
//            rounded once
//   source   the two-shot all-reduce of Wang et al., "MSCCL++: Rethinking GPU communication
//            abstractions for cutting-edge AI applications", arXiv 2504.09014 (2025); its ancestor
//            is Rabenseifner, "Optimization of collective reduction operations", ICCS 2004
//
// Results have a lane of their own, so that chunk k of them need not wait until the last chunk of
// the inputs has left: both passes overlap, and a chunk is still in the cache when it goes on.

#include "plan/two_shot_all_reduce.h"

#include "base/assert.h"
#include "plan/peers.h"

namespace ciuic::plan {

Plan two_shot_all_reduce(const Layout& layout, int rank) {
  const int size = layout.size();
  CIUIC_ASSERT(0 <= rank && rank < size);
  Plan plan;
  plan.partitions[0] = plan.partitions[1] = {size, Partition::Unit::kSplit};
  if (size == 1) {
    plan.copy(input(0), output(0));
  } else {
    const std::vector<int> peers = others(all_ranks(size), rank);
    // Ranks begin with different peers, or all would send to rank 0 first.
    for (int distance = 1; distance < size; ++distance) {
      const int owner = around(rank + distance, size);
      plan.send({owner}, input(owner));
    }
    Step& fold = plan.reduce(peers, /*own_place=*/rank, input(rank), output(rank));
    fold.received_raw = true;
    fold.final = true;
    plan.send(peers, output(rank), /*lane=*/1);
    for (int distance = 1; distance < size; ++distance) {
      const int owner = around(rank - distance, size);
      plan.receive(owner, output(owner), /*lane=*/1);
    }
  }
  plan.finish();
  return plan;
}

}  // namespace ciuic::plan
