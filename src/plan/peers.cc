// SPDX-License-Identifier: Apache-2.0
// peers.cc: lists of ranks that algorithms talk to, and of their blocks.

#include "plan/peers.h"

#include <algorithm>
#include <numeric>

namespace ciuic::plan {

std::vector<int> all_ranks(int size) {
  std::vector<int> ranks(size);
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

std::vector<int> others(const std::vector<int>& ranks, int rank) {
  std::vector<int> rest;
  rest.reserve(ranks.size());
  std::copy_if(ranks.begin(), ranks.end(), std::back_inserter(rest),
               [rank](int other) { return other != rank; });
  return rest;
}

std::vector<BlockRange> runs_of(const std::vector<int>& ranks, Space space) {
  std::vector<BlockRange> runs;
  for (const int rank : ranks) {
    if (!runs.empty() && runs.back().first + runs.back().count == rank) {
      ++runs.back().count;
    } else {
      runs.push_back({space, rank, 1});
    }
  }
  return runs;
}

}  // namespace ciuic::plan
