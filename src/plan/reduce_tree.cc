// SPDX-License-Identifier: Apache-2.0
// reduce_tree.cc: some ranks of a group reduce their values to one of them, up a binomial tree.

#include "plan/reduce_tree.h"

#include "plan/binomial_tree.h"

namespace ciuic::plan {

void add_reduce_tree(Plan* plan, const Members& members, int root, BlockRange value) {
  const BinomialTree tree = binomial_tree(members.size(), members.place, root);
  const bool at_root = members.place == root;
  const BlockRange sum = at_root ? output(0) : scratch(0);

  // A fold reads all its operands alike, so children that send their own input go apart. They have
  // waited for nobody, and are there first.
  std::vector<int> raw, reduced;
  for (size_t child = 0; child < tree.children.size(); ++child) {
    const int place = tree.children[child];
    std::vector<int>& group = tree.spans[child] == 1 && members.raw[place] ? raw : reduced;
    group.push_back(members.ranks[place]);
  }
  if (!raw.empty()) {
    Step& fold = plan->reduce(raw, /*own_place=*/0, value, sum);
    fold.received_raw = true;
    fold.final = at_root && reduced.empty();
    value = sum;
  }
  if (!reduced.empty()) {
    Step& fold = plan->reduce(reduced, /*own_place=*/0, value, sum);
    fold.final = at_root;
    value = sum;
  }
  if (!at_root) plan->send({members.ranks[tree.parent]}, value);
  if (at_root && value.space != Space::kOutput) plan->copy(value, output(0));
}

}  // namespace ciuic::plan
