// SPDX-License-Identifier: Apache-2.0
// binomial_tree.cc: who passes on to whom in a tree of `size` places.

#include "plan/binomial_tree.h"

#include "plan/peers.h"

namespace ciuic::plan {

// Counted from the root, place v has the children v + 1, v + 2, v + 4, ... below the lowest bit
// that is set in v, so that its subtree is what lies between it and v + that bit.
BinomialTree binomial_tree(int size, int place, int root) {
  const int from_root = around(place - root, size);
  BinomialTree tree;
  int bit = 1;
  while (bit < size && (from_root & bit) == 0) bit *= 2;
  if (from_root != 0) tree.parent = around(from_root - bit + root, size);
  for (bit /= 2; bit >= 1; bit /= 2) {
    const int child = from_root + bit;
    if (child >= size) continue;
    tree.children.push_back(around(child + root, size));
    tree.leaf.push_back(bit == 1 || child + 1 >= size);
  }
  return tree;
}

}  // namespace ciuic::plan
