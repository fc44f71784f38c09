// SPDX-License-Identifier: Apache-2.0
// two_level_scatter.cc: scatter in which the root sends each host's blocks to one rank of it, which
// passes them on.
//
//   steps    one receive a rank; a send a rank of the host at a host's leader; about m + h sends at
//            the root
//   sends    the root (n - 1) / n of its input; across hosts each block once
//   use for  small blocks, on several hosts, some with several ranks
//   source   Karonis et al., "Exploiting hierarchy in parallel computer networks to optimize
//            collective operation performance", IPDPS 2000

#include "plan/two_level_scatter.h"

#include "base/assert.h"
#include "plan/hosts.h"
#include "plan/peers.h"

namespace ciuic::plan {

Plan two_level_scatter(const Layout& layout, int rank, int root) {
  const int size = layout.size();
  CIUIC_ASSERT(0 <= rank && rank < size && 0 <= root && root < size);
  Plan plan;
  const int host = layout.host_of(rank);
  const Members leaders = host_leaders(layout, rank, root);
  const std::vector<int>& local = layout.ranks_on(host);
  plan.partitions[1] = {1, Partition::Unit::kEach, /*first=*/rank};
  if (leaders.ranks[host] != rank) {
    plan.receive(leaders.ranks[host], output(0));
  } else if (rank != root) {
    plan.partitions[2] = {static_cast<int>(local.size()), Partition::Unit::kEach, 0, local};
    int block = 0;
    for (const BlockRange& run : runs_of(local, Space::kInput)) {
      plan.receive(root, scratches(block, run.count));
      block += run.count;
    }
    for (const int other : local) {
      const BlockRange place = scratch(layout.local_index(other));
      if (other == rank) plan.copy(place, output(0));
      if (other != rank) plan.send({other}, place);
    }
  } else {
    plan.partitions[0] = {size, Partition::Unit::kEach};
    plan.input_offset = -root;
    for (int hop = 1; hop < layout.hosts(); ++hop) {
      const int to = around(host + hop, layout.hosts());
      for (const BlockRange& run : runs_of(layout.ranks_on(to), Space::kInput)) {
        plan.send({leaders.ranks[to]}, run);
      }
    }
    for (const int other : others(local, rank)) plan.send({other}, input(other));
    plan.copy(input(root), output(0));
  }
  plan.finish();
  return plan;
}

}  // namespace ciuic::plan
