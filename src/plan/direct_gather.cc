// SPDX-License-Identifier: Apache-2.0
// direct_gather.cc: gather in which every rank sends its block to the root.
//
//   steps    one send a rank; n - 1 receives and one copy at the root
//   sends    one block from each rank but the root
//   use for  one host; large blocks anywhere; uneven blocks
//   source   the linear gather of Thakur, Rabenseifner and Gropp, "Optimization of collective
//            communication operations in MPICH", Int. J. High Perform. Comput. Appl. 19 (2005)

#include "plan/direct_gather.h"

#include "base/assert.h"
#include "plan/peers.h"

namespace ciuic::plan {

Plan direct_gather(const Layout& layout, int rank, int root) {
  const int size = layout.size();
  CIUIC_ASSERT(0 <= rank && rank < size && 0 <= root && root < size);
  Plan plan;
  plan.partitions[0] = {1, Partition::Unit::kEach, /*first=*/rank};
  if (rank != root) {
    plan.send({root}, input(0));
  } else {
    plan.partitions[1] = {size, Partition::Unit::kEach};
    plan.input_offset = root;
    plan.copy(input(0), output(root));
    for (int distance = 1; distance < size; ++distance) {
      const int from = around(root + distance, size);
      plan.receive(from, output(from));
    }
  }
  plan.finish();
  return plan;
}

}  // namespace ciuic::plan
