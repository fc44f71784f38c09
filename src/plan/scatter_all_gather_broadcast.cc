// SPDX-License-Identifier: Apache-2.0
// scatter_all_gather_broadcast.cc: broadcast as a scatter to hosts down a binomial tree, then an
// all-gather round their ring, and inside each host at once.
//
//   steps    log2(h), then h - 1 hops, pipelined by chunks
//   sends    across hosts the root's 2 (h - 1) / h of the buffer
//   use for  large buffers on many hosts, where a chain would take long to fill
//   source   Barnett et al., "Interprocessor collective communication library (InterCom)", SHPCC
//            1994; van de Geijn's scatter and collect

#include "plan/scatter_all_gather_broadcast.h"

#include "base/assert.h"
#include "plan/binomial_tree.h"
#include "plan/hosts.h"
#include "plan/peers.h"

namespace ciuic::plan {

static constexpr int kRingLane = 1;
static constexpr int kShowLane = 2;

// Whether a host has the block before the ring begins, counted from the root's.
static bool holds(int place, int span, int block) { return place <= block && block < place + span; }

Plan scatter_all_gather_broadcast(const Layout& layout, int rank, int root) {
  const int size = layout.size();
  CIUIC_ASSERT(0 <= rank && rank < size && 0 <= root && root < size);
  Plan plan;
  const int hosts = layout.hosts();
  // Blocks, like hosts, are counted from the root's.
  plan.partitions[0] = plan.partitions[1] = {hosts, Partition::Unit::kSplit};
  const int host = layout.host_of(rank);
  const int root_host = layout.host_of(root);
  const Members leaders = host_leaders(layout, rank, root);
  const std::vector<int> peers = others(layout.ranks_on(host), rank);
  const auto span_of = [&](int place) {
    return binomial_tree(hosts, place, /*root=*/0).span;  // blocks that it has from the scatter
  };
  const int place = around(host - root_host, hosts);
  const int span = place == 0 ? hosts : span_of(place);
  if (leaders.ranks[host] != rank) {
    plan.receive(leaders.ranks[host], outputs(place, span), kShowLane);
    for (int hop = 0; hop < hosts - 1; ++hop) {
      const int coming = around(place - 1 - hop, hosts);
      if (!holds(place, span, coming)) plan.receive(leaders.ranks[host], output(coming), kShowLane);
    }
    plan.finish();
    return plan;
  }
  const Space value = rank == root ? Space::kInput : Space::kOutput;
  const BinomialTree tree = binomial_tree(hosts, host, root_host);
  if (rank != root) plan.receive(leaders.ranks[tree.parent], outputs(place, span));
  for (size_t index = 0; index < tree.children.size(); ++index) {
    const int child = tree.children[index];
    plan.send({leaders.ranks[child]}, {value, around(child - root_host, hosts), tree.spans[index]});
  }
  if (!peers.empty()) plan.send(peers, {value, place, span}, kShowLane);
  const int next = around(place + 1, hosts);
  const int next_rank = leaders.ranks[around(host + 1, hosts)];
  const int prev_rank = leaders.ranks[around(host - 1, hosts)];
  for (int hop = 0; hop < hosts - 1; ++hop) {
    const int leaving = around(place - hop, hosts);
    const int coming = around(place - 1 - hop, hosts);
    if (next != 0 && !holds(next, span_of(next), leaving)) {
      plan.send({next_rank}, {value, leaving, 1}, kRingLane);
    }
    if (place == 0 || holds(place, span, coming)) continue;
    plan.receive(prev_rank, output(coming), kRingLane);
    if (!peers.empty()) plan.send(peers, output(coming), kShowLane);
  }
  if (rank == root) plan.copy(inputs(0, hosts), outputs(0, hosts));
  plan.finish();
  return plan;
}

}  // namespace ciuic::plan
