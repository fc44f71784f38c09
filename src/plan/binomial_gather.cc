// SPDX-License-Identifier: Apache-2.0
// binomial_gather.cc: gather up a binomial tree, each rank passing on all that is below it.
//
//   steps    at most log2(n) receives and one send a rank, of up to half of all blocks
//   sends    the root's child with the largest subtree half of all blocks; the root none
//   use for  small blocks on hosts with one rank each
//   source   Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations
//            in MPICH", Int. J. High Perform. Comput. Appl. 19 (2005)

#include "plan/binomial_gather.h"

#include "base/assert.h"
#include "plan/binomial_tree.h"
#include "plan/peers.h"

namespace ciuic::plan {

Plan binomial_gather(const Layout& layout, int rank, int root) {
  const int size = layout.size();
  CIUIC_ASSERT(0 <= rank && rank < size && 0 <= root && root < size);
  Plan plan;
  const BinomialTree tree = binomial_tree(size, rank, root);
  plan.partitions[0] = {1, Partition::Unit::kEach, /*first=*/rank};
  if (rank == root) {
    plan.partitions[1] = {size, Partition::Unit::kEach};
    plan.input_offset = root;
    plan.copy(input(0), output(root));
  } else if (tree.span > 1) {
    plan.partitions[2] = {tree.span, Partition::Unit::kEach, /*first=*/rank};
    plan.copy(input(0), scratch(0));
  }
  for (size_t index = 0; index < tree.children.size(); ++index) {
    const int child = tree.children[index];
    const int place = around(child - rank, size);
    if (rank != root) plan.receive(child, scratches(place, tree.spans[index]));
    // Only here may the blocks of a subtree go round the end, in two messages.
    const auto [before, after] = cut_round(child, tree.spans[index], size);
    if (rank == root) plan.receive(child, outputs(child, before));
    if (rank == root && after > 0) plan.receive(child, outputs(0, after));
  }
  if (rank != root) {
    const BlockRange all = tree.span > 1 ? scratches(0, tree.span) : input(0);
    const auto [before, after] = cut_round(rank, tree.span, size);
    const bool cut = tree.parent == root && after > 0;
    plan.send({tree.parent}, cut ? all.part(0, before) : all);
    if (cut) plan.send({tree.parent}, all.part(before, after));
  }
  plan.finish();
  return plan;
}

}  // namespace ciuic::plan
