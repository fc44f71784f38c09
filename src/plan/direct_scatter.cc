// SPDX-License-Identifier: Apache-2.0
// direct_scatter.cc: scatter in which the root sends every rank its block.
//
//   steps    one receive a rank; n - 1 sends and one copy at the root
//   sends    the root (n - 1) / n of its input
//   use for  one host; large blocks anywhere; uneven blocks
//   source   the linear scatter of Thakur, Rabenseifner and Gropp, "Optimization of collective
//            communication operations in MPICH", Int. J. High Perform. Comput. Appl. 19 (2005)

#include "plan/direct_scatter.h"

#include "base/assert.h"
#include "plan/peers.h"

namespace ciuic::plan {

Plan direct_scatter(const Layout& layout, int rank, int root) {
  const int size = layout.size();
  CIUIC_ASSERT(0 <= rank && rank < size && 0 <= root && root < size);
  Plan plan;
  plan.partitions[1] = {1, Partition::Unit::kEach, /*first=*/rank};
  if (rank != root) {
    plan.receive(root, output(0));
  } else {
    plan.partitions[0] = {size, Partition::Unit::kEach};
    plan.input_offset = -root;
    for (int distance = 1; distance < size; ++distance) {
      const int to = around(root + distance, size);
      plan.send({to}, input(to));
    }
    plan.copy(input(root), output(0));
  }
  plan.finish();
  return plan;
}

}  // namespace ciuic::plan
