// SPDX-License-Identifier: Apache-2.0
// recursive_halving_all_reduce.cc: all-reduce as a reduce-scatter by recursive halving, then an
// all-gather by recursive doubling.
//
//   steps    2 log2(n) exchanges; where n is no power of two, pairs of ranks fold into one first
//            and the second of a pair gets the result last
//   sends    2 (n - 1) / n of the buffer from each rank; up to twice that where n is no power of
//            two
//   use for  middle-sized buffers across hosts
//   source   Rabenseifner, "Optimization of collective reduction operations", ICCS 2004

#include "plan/recursive_halving_all_reduce.h"

#include "base/assert.h"
#include "plan/members.h"

namespace ciuic::plan {

Plan recursive_halving_all_reduce(const Layout& layout, int rank) {
  const int size = layout.size();
  CIUIC_ASSERT(0 <= rank && rank < size);
  Plan plan;
  plan.partitions[0] = plan.partitions[1] = {halving_blocks(size), Partition::Unit::kSplit};
  if (size == 1) plan.copy(input(0), output(0));
  if (size > 1) add_halving(&plan, whole_group(size, rank), /*first_block=*/0, /*reduced=*/false);
  plan.finish();
  return plan;
}

}  // namespace ciuic::plan
