// SPDX-License-Identifier: Apache-2.0
// peers.h: lists of ranks that algorithms talk to, and of their blocks.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "plan/plan.h"

namespace ciuic::plan {

std::vector<int> all_ranks(int size);

// `ranks` without `rank`.
std::vector<int> others(const std::vector<int>& ranks, int rank);

// The blocks of `ranks`, which are ascending, as ranges of a space with a block for each rank.
std::vector<BlockRange> runs_of(const std::vector<int>& ranks, Space space);

// How many of `count` ranks from `first` on come before the last rank's end, and how many after it,
// from rank 0 on.
inline std::pair<int, int> cut_round(int first, int count, int size) {
  const int before = std::min(count, size - first);
  return {before, count - before};
}

// Counts `index` round a ring of `size` places: -1 is the last place, `size` the first.
inline int around(int index, int size) { return (index % size + size) % size; }

}  // namespace ciuic::plan
