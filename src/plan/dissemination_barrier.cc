// SPDX-License-Identifier: Apache-2.0
// dissemination_barrier.cc: barrier in which each rank tells ranks at distances 1, 2, 4, ...
//
//   steps    log2(n) rounds of a send and a receive
//   sends    log2(n) empty messages from each rank
//   use for  hosts with one rank each
//   source   Hensgen, Finkel and Manber, "Two algorithms for barrier synchronization", Int. J.
//            Parallel Program. 17 (1988)

#include "plan/dissemination_barrier.h"

#include "base/assert.h"
#include "plan/dissemination.h"
#include "plan/peers.h"

namespace ciuic::plan {

Plan dissemination_barrier(const Layout& layout, int rank) {
  const int size = layout.size();
  CIUIC_ASSERT(0 <= rank && rank < size);
  Plan plan;
  const int last_token = add_dissemination(&plan, all_ranks(size), rank, /*token=*/0);
  if (size > 1) {
    plan.partitions[static_cast<int>(Space::kScratch)] = {last_token + 1, Partition::Unit::kEach};
  }
  plan.finish();
  return plan;
}

}  // namespace ciuic::plan
