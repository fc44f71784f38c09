// SPDX-License-Identifier: Apache-2.0
// peers.h: lists of ranks that algorithms talk to.
#pragma once

#include <vector>

namespace ciuic::plan {

std::vector<int> all_ranks(int size);

// `ranks` without `rank`.
std::vector<int> others(const std::vector<int>& ranks, int rank);

// Counts `index` round a ring of `size` places: -1 is the last place, `size` the first.
inline int around(int index, int size) { return (index % size + size) % size; }

}  // namespace ciuic::plan
