// SPDX-License-Identifier: Apache-2.0
// two_level_gather.cc: gather inside each host to one rank, which sends its host's blocks to the
// root.
//
//   steps    one send a rank; a receive a rank of the host and a send at a host's leader; about
//            m + h receives at the root
//   sends    one block from each rank but the root; across hosts each block once
//   use for  small blocks, on several hosts, some with several ranks
//   source   Karonis et al., "Exploiting hierarchy in parallel computer networks to optimize
//            collective operation performance", IPDPS 2000

#include "plan/two_level_gather.h"

#include "base/assert.h"
#include "plan/hosts.h"
#include "plan/peers.h"

namespace ciuic::plan {

Plan two_level_gather(const Layout& layout, int rank, int root) {
  const int size = layout.size();
  CIUIC_ASSERT(0 <= rank && rank < size && 0 <= root && root < size);
  Plan plan;
  const int host = layout.host_of(rank);
  const Members leaders = host_leaders(layout, rank, root);
  const std::vector<int>& local = layout.ranks_on(host);
  plan.partitions[0] = {1, Partition::Unit::kEach, /*first=*/rank};
  if (leaders.ranks[host] != rank) {
    plan.send({leaders.ranks[host]}, input(0));
  } else if (rank != root) {
    plan.partitions[2] = {static_cast<int>(local.size()), Partition::Unit::kEach, 0, local};
    for (const int other : local) {
      const BlockRange place = scratch(layout.local_index(other));
      if (other == rank) plan.copy(input(0), place);
      if (other != rank) plan.receive(other, place);
    }
    int block = 0;
    for (const BlockRange& run : runs_of(local, Space::kOutput)) {
      plan.send({root}, scratches(block, run.count));
      block += run.count;
    }
  } else {
    plan.partitions[1] = {size, Partition::Unit::kEach};
    plan.input_offset = root;
    plan.copy(input(0), output(root));
    for (const int other : others(local, rank)) plan.receive(other, output(other));
    for (int hop = 1; hop < layout.hosts(); ++hop) {
      const int from = around(host + hop, layout.hosts());
      for (const BlockRange& run : runs_of(layout.ranks_on(from), Space::kOutput)) {
        plan.receive(leaders.ranks[from], run);
      }
    }
  }
  plan.finish();
  return plan;
}

}  // namespace ciuic::plan
