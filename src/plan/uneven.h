// SPDX-License-Identifier: Apache-2.0
// uneven.h: counts that differ from rank to rank: what plans are proved for, and on.
#pragma once

#include <utility>
#include <vector>

#include "plan/plan.h"
#include "plan/registry.h"

namespace ciuic::plan {

// Patterns of counts in which some ranks, or all but one, have nothing.
inline constexpr int kUnevenPatterns = 3;

// What `rank` knows of the counts of such a call: 0 for blocks that it neither gives nor gets.
Counts uneven_counts(Operation operation, int size, int rank, int root, int pattern);

// The blocks of a range, each by whose block it is, in ascending order. Equal ones have the same
// number of elements whatever the counts are: (giver, getter) in all_to_all, where each pair of
// ranks has its own count, elsewhere (rank, 0).
std::vector<std::pair<int, int>> uneven_size(Operation operation, const Plan& plan, int size,
                                             int rank, BlockRange range);

}  // namespace ciuic::plan
