// SPDX-License-Identifier: Apache-2.0
// hosts.cc: the ranks that stand for their hosts in algorithms of two levels.

#include "plan/hosts.h"

#include "plan/peers.h"

namespace ciuic::plan {

Members host_members(const Layout& layout, int rank, int index) {
  Members members;
  for (int host = 0; host < layout.hosts(); ++host) {
    members.ranks.push_back(layout.ranks_on(host)[index]);
    members.raw.push_back(layout.ranks_on(host).size() == 1);
  }
  members.place = layout.host_of(rank);
  return members;
}

Members host_leaders(const Layout& layout, int rank, int root) {
  Members members = host_members(layout, rank, /*index=*/0);
  members.ranks[layout.host_of(root)] = root;
  return members;
}

Plan broadcast_between_hosts(const Layout& layout, int rank, int root, int parent,
                             const std::vector<int>& children) {
  Plan plan;
  plan.partitions[0] = plan.partitions[1] = {1, Partition::Unit::kSplit};
  const int host = layout.host_of(rank);
  const Members leaders = host_leaders(layout, rank, root);
  if (leaders.ranks[host] != rank) {
    plan.receive(leaders.ranks[host], output(0));
  } else {
    const BlockRange value = rank == root ? input(0) : output(0);
    if (rank != root) plan.receive(leaders.ranks[parent], output(0));
    for (const int child : children) plan.send({leaders.ranks[child]}, value);
    const std::vector<int> peers = others(layout.ranks_on(host), rank);
    if (!peers.empty()) plan.send(peers, value);
    if (rank == root) plan.copy(input(0), output(0));
  }
  plan.finish();
  return plan;
}

BlockRange add_host_sum(Plan* plan, const Layout& layout, int rank, BlockRange sum) {
  const std::vector<int> peers = others(layout.ranks_on(layout.host_of(rank)), rank);
  if (peers.empty()) return input(0);
  Step& fold = plan->reduce(peers, layout.local_index(rank), input(0), sum);
  fold.received_raw = true;
  fold.final = layout.hosts() == 1;
  return sum;
}

}  // namespace ciuic::plan
