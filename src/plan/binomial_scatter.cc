// SPDX-License-Identifier: Apache-2.0
// binomial_scatter.cc: scatter down a binomial tree, each rank passing on all that is below it.
//
//   steps    at most one receive, of up to half of all blocks, and log2(n) sends a rank
//   sends    the root (n - 1) / n of its input, half of the ranks nothing
//   use for  small blocks on hosts with one rank each
//   source   Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations
//            in MPICH", Int. J. High Perform. Comput. Appl. 19 (2005)

#include "plan/binomial_scatter.h"

#include "base/assert.h"
#include "plan/binomial_tree.h"
#include "plan/peers.h"

namespace ciuic::plan {

Plan binomial_scatter(const Layout& layout, int rank, int root) {
  const int size = layout.size();
  CIUIC_ASSERT(0 <= rank && rank < size && 0 <= root && root < size);
  Plan plan;
  const BinomialTree tree = binomial_tree(size, rank, root);
  plan.partitions[1] = {1, Partition::Unit::kEach, /*first=*/rank};
  if (rank == root) {
    plan.partitions[0] = {size, Partition::Unit::kEach};
    plan.input_offset = -root;
  } else {
    if (tree.span > 1) plan.partitions[2] = {tree.span, Partition::Unit::kEach, /*first=*/rank};
    const BlockRange all = tree.span > 1 ? scratches(0, tree.span) : output(0);
    const auto [before, after] = cut_round(rank, tree.span, size);
    const bool cut = tree.parent == root && after > 0;
    plan.receive(tree.parent, cut ? all.part(0, before) : all);
    if (cut) plan.receive(tree.parent, all.part(before, after));
  }
  for (size_t index = 0; index < tree.children.size(); ++index) {
    const int child = tree.children[index];
    const int place = around(child - rank, size);
    if (rank != root) plan.send({child}, scratches(place, tree.spans[index]));
    // Only here may the blocks of a subtree go round the end, in two messages.
    const auto [before, after] = cut_round(child, tree.spans[index], size);
    if (rank == root) plan.send({child}, inputs(child, before));
    if (rank == root && after > 0) plan.send({child}, inputs(0, after));
  }
  if (rank == root) plan.copy(input(root), output(0));
  if (rank != root && tree.span > 1) plan.copy(scratch(0), output(0));
  plan.finish();
  return plan;
}

}  // namespace ciuic::plan
