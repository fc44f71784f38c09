// SPDX-License-Identifier: Apache-2.0
// bruck_all_gather.cc: all-gather in log2(n) rounds, in each of which what a rank has doubles.
//
//   steps    log2(n) exchanges, at any n; three copies
//   sends    n - 1 blocks from each rank
//   use for  small blocks across hosts whose number is no power of two
//   source   Bruck et al., "Efficient algorithms for all-to-all communications in multiport
//            message-passing systems", IEEE Trans. Parallel Distrib. Syst. 8 (1997)

#include "plan/bruck_all_gather.h"

#include <algorithm>

#include "base/assert.h"
#include "plan/peers.h"

namespace ciuic::plan {

Plan bruck_all_gather(const Layout& layout, int rank) {
  const int size = layout.size();
  CIUIC_ASSERT(0 <= rank && rank < size);
  Plan plan;
  plan.partitions[0] = {1, Partition::Unit::kEach, /*first=*/rank};
  plan.partitions[1] = {size, Partition::Unit::kEach};
  // Counted from this rank round, so that what it has and what it gets lie one after another.
  plan.partitions[2] = {size, Partition::Unit::kEach, /*first=*/rank};
  plan.input_offset = rank;
  plan.copy(input(0), scratch(0));
  for (int distance = 1; distance < size; distance *= 2) {
    const int count = std::min(distance, size - distance);
    plan.send({around(rank - distance, size)}, scratches(0, count));
    plan.receive(around(rank + distance, size), scratches(distance, count));
  }
  plan.copy(scratches(0, size - rank), outputs(rank, size - rank));
  if (rank > 0) plan.copy(scratches(size - rank, rank), outputs(0, rank));
  plan.finish();
  return plan;
}

}  // namespace ciuic::plan
