// SPDX-License-Identifier: Apache-2.0
// dissemination.cc: the rounds of a barrier among some ranks, in which knowledge doubles.

#include "plan/dissemination.h"

#include "plan/peers.h"

namespace ciuic::plan {

int add_dissemination(Plan* plan, const std::vector<int>& ranks, int place, int token) {
  const int size = static_cast<int>(ranks.size());
  for (int distance = 1; distance < size; distance *= 2) {
    plan->send({ranks[around(place + distance, size)]}, scratch(token));
    // Folding the last token in is what makes each round come after all those before it, though
    // their messages are from different ranks.
    plan->reduce({ranks[around(place - distance, size)]}, /*own_place=*/0, scratch(token),
                 scratch(token + 1));
    ++token;
  }
  return token;
}

}  // namespace ciuic::plan
