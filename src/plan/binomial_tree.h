// SPDX-License-Identifier: Apache-2.0
// binomial_tree.h: who passes on to whom in a tree of `size` places.
#pragma once

#include <vector>

namespace ciuic::plan {

struct BinomialTree {
  int parent = -1;            // -1 at the root
  std::vector<int> children;  // the one with the largest subtree first
  std::vector<bool> leaf;     // whether children[i] has none of its own
};

// The neighbours of `place`. Each subtree is an interval of places, counted round from the root.
BinomialTree binomial_tree(int size, int place, int root);

}  // namespace ciuic::plan
