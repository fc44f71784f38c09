// SPDX-License-Identifier: Apache-2.0
// recursive_doubling_all_reduce.cc: all-reduce by exchanging whole buffers with partners at
// distances 1, 2, 4, ...
//
//   steps    log2(n) exchanges; where n is no power of two, pairs of ranks fold into one first and
//            the second of a pair gets the result last
//   sends    log2(n) buffers from each rank
//   use for  small buffers across hosts, where latency is what counts
//   source   Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations
//            in MPICH", Int. J. High Perform. Comput. Appl. 19 (2005)
//
// Every rank adds up the whole buffer itself. All get the same bits since all fold the same tree:
// the operand of the lower ranks is always the left one.

#include "plan/recursive_doubling_all_reduce.h"

#include "base/assert.h"
#include "plan/members.h"

namespace ciuic::plan {

Plan recursive_doubling_all_reduce(const Layout& layout, int rank) {
  const int size = layout.size();
  CIUIC_ASSERT(0 <= rank && rank < size);
  Plan plan;
  for (Partition& partition : plan.partitions) partition = {1, Partition::Unit::kSplit};
  if (size == 1) plan.copy(input(0), output(0));
  if (size > 1) add_recursive_doubling(&plan, whole_group(size, rank), /*block=*/0, input(0));
  plan.finish();
  return plan;
}

}  // namespace ciuic::plan
