// SPDX-License-Identifier: Apache-2.0
// ring_all_reduce.cc: all-reduce round a ring, as a reduce-scatter pass, then an all-gather pass.
//
//   steps    2 (n - 1), each after the one before, chunk by chunk
//   sends    2 (n - 1) / n of the buffer from each rank, the least that any algorithm can do
//   use for  large buffers across hosts; small ones pay 2 (n - 1) latencies, see
//            recursive_doubling_all_reduce.cc
//   source   Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of
//            workstations", J. Parallel Distrib. Comput. 69 (2009)

#include "plan/ring_all_reduce.h"

#include "base/assert.h"
#include "plan/members.h"

namespace ciuic::plan {

Plan ring_all_reduce(const Layout& layout, int rank) {
  const int size = layout.size();
  CIUIC_ASSERT(0 <= rank && rank < size);
  Plan plan;
  plan.partitions[0] = plan.partitions[1] = {size, Partition::Unit::kSplit};
  if (size == 1) plan.copy(input(0), output(0));
  if (size > 1) add_ring(&plan, whole_group(size, rank), /*first_block=*/0, /*reduced=*/false);
  plan.finish();
  return plan;
}

}  // namespace ciuic::plan
