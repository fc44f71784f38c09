// SPDX-License-Identifier: Apache-2.0
// scatter_all_gather_broadcast.cc: broadcast as a scatter to the other hosts, then an all-gather
// round their ring, and inside each host at once.
//
//   steps    h - 1 sends at the root; h - 2 hops of a ring
//   sends    across hosts one buffer from each host
//   use for  middle-sized buffers on many hosts, where a chain would take long to fill
//   source   Barnett et al., "Interprocessor collective communication library (InterCom)", SHPCC
//            1994; van de Geijn's scatter and collect

#include "plan/scatter_all_gather_broadcast.h"

#include <algorithm>

#include "base/assert.h"
#include "plan/hosts.h"
#include "plan/peers.h"

namespace ciuic::plan {

static constexpr int kRingLane = 1;
static constexpr int kShowLane = 2;

// There is a block for each host but the root's, which are counted from that one on.
Plan scatter_all_gather_broadcast(const Layout& layout, int rank, int root) {
  CIUIC_ASSERT(0 <= rank && rank < layout.size() && 0 <= root && root < layout.size());
  const int host = layout.host_of(rank);
  const int root_host = layout.host_of(root);
  const int blocks = std::max(1, layout.hosts() - 1);
  const int own = around(host - root_host, layout.hosts()) - 1;
  const Members leaders = host_leaders(layout, rank, root);
  const auto leader_of = [&](int block) {
    return leaders.ranks[around(root_host + 1 + around(block, blocks), layout.hosts())];
  };
  const std::vector<int> peers = others(layout.ranks_on(host), rank);
  Plan plan;
  plan.partitions[0] = plan.partitions[1] = {blocks, Partition::Unit::kSplit};
  if (rank == root) {
    for (int block = 0; block < layout.hosts() - 1; ++block) {
      plan.send({leader_of(block)}, input(block));
    }
    if (!peers.empty()) plan.send(peers, inputs(0, blocks), kShowLane);
    plan.copy(inputs(0, blocks), outputs(0, blocks));
  } else if (host == root_host) {
    plan.receive(root, outputs(0, blocks), kShowLane);
  } else if (leaders.ranks[host] != rank) {
    for (int hop = 0; hop < blocks; ++hop) {
      plan.receive(leaders.ranks[host], output(around(own - hop, blocks)), kShowLane);
    }
  } else {
    for (int hop = 0; hop < blocks; ++hop) {
      const BlockRange block = output(around(own - hop, blocks));
      plan.receive(hop == 0 ? root : leader_of(own - 1), block, hop == 0 ? 0 : kRingLane);
      if (hop < blocks - 1) plan.send({leader_of(own + 1)}, block, kRingLane);
      if (!peers.empty()) plan.send(peers, block, kShowLane);
    }
  }
  plan.finish();
  return plan;
}

}  // namespace ciuic::plan
