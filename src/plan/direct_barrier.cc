// SPDX-License-Identifier: Apache-2.0
// direct_barrier.cc: barrier in which every rank tells all others that it is there.
//
//   steps    one send that n - 1 ranks read, n - 1 receives
//   sends    n - 1 empty messages from each rank
//   use for  one host: one latency
//   source   the centralised barrier in Mellor-Crummey and Scott, "Algorithms for scalable
//            synchronization on shared-memory multiprocessors", ACM TOCS 9 (1991), a flag a pair

#include "plan/direct_barrier.h"

#include "base/assert.h"
#include "plan/peers.h"

namespace ciuic::plan {

Plan direct_barrier(const Layout& layout, int rank) {
  const int size = layout.size();
  CIUIC_ASSERT(0 <= rank && rank < size);
  Plan plan;
  const std::vector<int> peers = others(all_ranks(size), rank);
  if (size > 1) plan.send(peers, nothing());
  for (const int peer : peers) plan.receive(peer, nothing());
  plan.finish();
  return plan;
}

}  // namespace ciuic::plan
