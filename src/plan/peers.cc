// SPDX-License-Identifier: Apache-2.0
// peers.cc: lists of ranks that algorithms talk to.

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

}  // namespace ciuic::plan
