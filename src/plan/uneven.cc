// SPDX-License-Identifier: Apache-2.0
// uneven.cc: patterns of counts, and sizes for all counts at once.

#include "plan/uneven.h"

#include <algorithm>
#include <functional>

namespace ciuic::plan {

static int64_t count_of(int pattern, int rank, int size) {
  if (pattern == 0) return (2 * rank + 1) % 3;
  if (pattern == 1) return rank == size - 1 ? 3 : 0;
  return rank % 2 == 0 ? 2 : 0;
}

static int64_t count_of(int pattern, int giver, int getter, int size) {
  if (pattern == 0) return (giver + 2 * getter + giver * getter) % 3;
  if (pattern == 1) return giver == size - 1 && getter == 0 ? 3 : 0;
  return (giver + getter) % 2;
}

static std::vector<int64_t> sums(int size, const std::function<int64_t(int)>& count) {
  std::vector<int64_t> sums = {0};
  for (int rank = 0; rank < size; ++rank) sums.push_back(sums.back() + count(rank));
  return sums;
}

Counts uneven_counts(Operation operation, int size, int rank, int root, int pattern) {
  Counts counts;
  if (operation == Operation::kAllToAll) {
    counts.input = sums(size, [&](int to) { return count_of(pattern, rank, to, size); });
    counts.output = sums(size, [&](int from) { return count_of(pattern, from, rank, size); });
    return counts;
  }
  const bool knows_all = !has_root(operation) || rank == root;
  std::vector<int64_t> all = sums(size, [&](int other) {
    return knows_all || other == rank ? count_of(pattern, other, size) : 0;
  });
  const Shape shape = shape_of(operation, size, rank, root);
  (shape.input > 1 ? counts.input : counts.output) = std::move(all);
  return counts;
}

std::vector<std::pair<int, int>> uneven_size(Operation operation, const Plan& plan, int size,
                                             int rank, BlockRange range) {
  const Partition& partition = plan.partitions[static_cast<int>(range.space)];
  std::vector<std::pair<int, int>> blocks;
  for (int block = range.first; block < range.first + range.count; ++block) {
    const int owner = partition.owner(block, size);
    const bool gives = range.space != Space::kOutput;
    blocks.emplace_back(owner, 0);
    if (operation == Operation::kAllToAll) {
      blocks.back() = gives ? std::pair(rank, owner) : std::pair(owner, rank);
    }
  }
  std::sort(blocks.begin(), blocks.end());
  return blocks;
}

}  // namespace ciuic::plan
