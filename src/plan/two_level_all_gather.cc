// SPDX-License-Identifier: Apache-2.0
// two_level_all_gather.cc: all-gather inside each host at once, and round rings of hosts.
//
// As many rings as the smallest host has ranks. Ring s runs through the rank with local index s of
// each host, and carries the blocks of every s-th rank of a host. What it brings to a host is shown
// to all of it at once.
//
//   steps    about n
//   sends    each block crosses between two hosts h - 1 times, and is written once on each host
//   use for  several hosts, some with several ranks
//   source   Karonis et al., "Exploiting hierarchy in parallel computer networks to optimize
//            collective operation performance", IPDPS 2000

#include "plan/two_level_all_gather.h"

#include "base/assert.h"
#include "plan/hosts.h"
#include "plan/peers.h"

namespace ciuic::plan {

static constexpr int kForwardLane = 1;  // what came from other hosts

// The ranks of `host` whose blocks ring number `ring` carries.
static std::vector<int> carried(const Layout& layout, int host, int ring) {
  std::vector<int> ranks;
  for (const int rank : layout.ranks_on(host)) {
    if (layout.local_index(rank) % layout.smallest_host() == ring) ranks.push_back(rank);
  }
  return ranks;
}

// Runs this rank's ring, and shows each block that arrives to `peers`, the rest of its host.
static void add_ring_of_hosts(Plan* plan, const Layout& layout, int rank,
                              const std::vector<int>& peers) {
  const int hosts = layout.hosts();
  const int ring = layout.local_index(rank);
  const Members members = host_members(layout, rank, ring);
  const int next = members.ranks[around(members.place + 1, hosts)];
  const int prev = members.ranks[around(members.place - 1, hosts)];
  for (int hop = 0; hop < hosts - 1; ++hop) {
    for (const int owner : carried(layout, around(members.place - hop, hosts), ring)) {
      plan->send({next}, owner == rank ? input(0) : output(owner));
    }
    for (const int owner : carried(layout, around(members.place - hop - 1, hosts), ring)) {
      plan->receive(prev, output(owner));
      if (!peers.empty()) plan->send(peers, output(owner), kForwardLane);
    }
  }
}

Plan two_level_all_gather(const Layout& layout, int rank) {
  CIUIC_ASSERT(0 <= rank && rank < layout.size());
  Plan plan;
  plan.partitions[0] = {1, Partition::Unit::kEach, /*first=*/rank};
  plan.partitions[1] = {layout.size(), Partition::Unit::kEach};
  plan.input_offset = rank;
  const int host = layout.host_of(rank);
  const std::vector<int>& local = layout.ranks_on(host);
  const std::vector<int> peers = others(local, rank);
  if (!peers.empty()) plan.send(peers, input(0));
  for (const int peer : peers) plan.receive(peer, output(peer));
  const int rings = layout.smallest_host();
  if (layout.local_index(rank) < rings) add_ring_of_hosts(&plan, layout, rank, peers);
  for (int ring = 0; ring < rings; ++ring) {
    if (ring == layout.local_index(rank)) continue;
    for (int hop = 1; hop < layout.hosts(); ++hop) {
      for (const int owner : carried(layout, around(host - hop, layout.hosts()), ring)) {
        plan.receive(local[ring], output(owner), kForwardLane);
      }
    }
  }
  plan.copy(input(0), output(rank));
  plan.finish();
  return plan;
}

}  // namespace ciuic::plan
