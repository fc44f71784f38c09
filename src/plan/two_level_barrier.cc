// SPDX-License-Identifier: Apache-2.0
// two_level_barrier.cc: barrier in which each host's ranks report to its lowest, which spreads it
// among hosts by dissemination and then lets its host go.
//
//   steps    one fold, log2(h) rounds and one send at a host's lowest rank; elsewhere two
//   sends    log2(h) empty messages from each host
//   use for  several hosts, some with several ranks
//   source   Hensgen, Finkel and Manber, "Two algorithms for barrier synchronization", Int. J.
//            Parallel Program. 17 (1988), for the rounds

#include "plan/two_level_barrier.h"

#include "base/assert.h"
#include "plan/dissemination.h"
#include "plan/hosts.h"
#include "plan/peers.h"

namespace ciuic::plan {

Plan two_level_barrier(const Layout& layout, int rank) {
  CIUIC_ASSERT(0 <= rank && rank < layout.size());
  Plan plan;
  const int host = layout.host_of(rank);
  const Members leaders = host_members(layout, rank, /*index=*/0);
  int token = 0;
  if (leaders.ranks[host] != rank) {
    plan.send({leaders.ranks[host]}, scratch(token));
    plan.receive(leaders.ranks[host], scratch(++token));
  } else {
    const std::vector<int> peers = others(layout.ranks_on(host), rank);
    if (!peers.empty()) {
      plan.reduce(peers, /*own_place=*/0, scratch(token), scratch(token + 1));
      ++token;
    }
    token = add_dissemination(&plan, leaders.ranks, host, token);
    if (!peers.empty()) plan.send(peers, scratch(token));
  }
  plan.partitions[static_cast<int>(Space::kScratch)] = {token + 1, Partition::Unit::kEach};
  plan.finish();
  return plan;
}

}  // namespace ciuic::plan
