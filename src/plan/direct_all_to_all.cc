// SPDX-License-Identifier: Apache-2.0
// direct_all_to_all.cc: all-to-all in which every rank sends each other its block, and no rank
// begins with the same peer as another.
//
//   steps    n - 1 sends and receives of a block, one copy
//   sends    (n - 1) / n of the input from each rank, the least that any algorithm can do
//   use for  one host; large blocks anywhere; uneven blocks
//   source   Bruck et al., "Efficient algorithms for all-to-all communications in multiport
//            message-passing systems", IEEE Trans. Parallel Distrib. Syst. 8 (1997), the index
//            algorithm with radix n

#include "plan/direct_all_to_all.h"

#include "base/assert.h"
#include "plan/peers.h"

namespace ciuic::plan {

Plan direct_all_to_all(const Layout& layout, int rank) {
  const int size = layout.size();
  CIUIC_ASSERT(0 <= rank && rank < size);
  Plan plan;
  plan.partitions[0] = plan.partitions[1] = {size, Partition::Unit::kEach};
  plan.allows_in_place = false;
  for (int distance = 1; distance < size; ++distance) {
    const int to = around(rank + distance, size);
    const int from = around(rank - distance, size);
    plan.send({to}, input(to));
    plan.receive(from, output(from));
  }
  plan.copy(input(rank), output(rank));
  plan.finish();
  return plan;
}

}  // namespace ciuic::plan
