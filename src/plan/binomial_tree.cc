// SPDX-License-Identifier: Apache-2.0
// binomial_tree.cc: who passes on to whom in a tree of `size` places.

#include "plan/binomial_tree.h"

#include <algorithm>

#include "plan/peers.h"

namespace ciuic::plan {

// Counted from the root and written with base k, place v has the children that differ from it in
// one digit below the lowest that is not 0 in v, so that its subtree is what lies between it and v
// with that digit one higher.
BinomialTree binomial_tree(int size, int place, int root, int radix) {
  BinomialTree tree;
  tree.from_root = around(place - root, size);
  int unit = 1;
  while (unit < size && tree.from_root % (unit * radix) == 0) unit *= radix;
  if (tree.from_root != 0) {
    const int digit = tree.from_root / unit % radix;
    tree.parent = around(tree.from_root - digit * unit + root, size);
  }
  tree.span = std::min(unit, size - tree.from_root);
  for (unit /= radix; unit >= 1; unit /= radix) {
    for (int digit = 1; digit < radix; ++digit) {
      const int child = tree.from_root + digit * unit;
      if (child >= size) break;
      tree.children.push_back(around(child + root, size));
      tree.spans.push_back(std::min(unit, size - child));
    }
  }
  return tree;
}

}  // namespace ciuic::plan
