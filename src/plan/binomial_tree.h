// SPDX-License-Identifier: Apache-2.0
// binomial_tree.h: who passes on to whom in a tree of `size` places.
#pragma once

#include <vector>

namespace ciuic::plan {

struct BinomialTree {
  int parent = -1;            // -1 at the root
  int from_root = 0;          // places, counted round
  int span = 1;               // of the subtree: it has this place and the span - 1 after it, round
  std::vector<int> children;  // the one with the largest subtree first
  std::vector<int> spans;     // of children[i]
};

// The neighbours of `place`. With a radix of k, a place has up to k - 1 children at each distance
// 1, k, k^2, ... that it has children at.
BinomialTree binomial_tree(int size, int place, int root, int radix = 2);

}  // namespace ciuic::plan
