// SPDX-License-Identifier: Apache-2.0
// two_level_reduce_scatter.cc: reduce-scatter inside each host first, then across hosts.
//
// For each block of another host, one rank of this host adds up the host's contributions and sends
// the sum to whose block it is. Blocks of ranks with equal local indices are the same rank's, so
// that all of a host have as much to do.
//
//   steps    n - 1 sends of a block inside; n / m folds and sends across; two or three folds of its
//            own block
//   sends    across hosts (h - 1) / h of the input from all ranks of a host together, the least
//            that any algorithm can do
//   use for  several hosts, some with several ranks. 16-bit floats are rounded once a host, then
//            once
//   source   Karonis et al., "Exploiting hierarchy in parallel computer networks to optimize
//            collective operation performance", IPDPS 2000

#include "plan/two_level_reduce_scatter.h"

#include <algorithm>

#include "base/assert.h"
#include "plan/peers.h"

namespace ciuic::plan {

namespace {

class Builder {
 public:
  Builder(const Layout& layout, int rank, Plan* plan)
      : layout_(layout),
        rank_(rank),
        host_(layout.host_of(rank)),
        peers_(others(layout.ranks_on(host_), rank)),
        plan_(*plan) {}

  // Hosts begin with different hosts, and end with their own blocks.
  void add_host_sums() {
    for (int hop = 1; hop <= layout_.hosts(); ++hop) {
      for (const int owner : layout_.ranks_on(around(host_ + hop, layout_.hosts()))) {
        const int handler = handler_on(host_, owner);
        if (handler != rank_) {
          plan_.send({handler}, input(owner));
        } else if (owner != rank_) {
          plan_.send({owner}, sum_for(owner));
        }
      }
    }
  }

  void fold_own_block() {
    BlockRange value = input(rank_);
    if (!peers_.empty()) fold(peers_, layout_.local_index(rank_), /*raw=*/true, &value);
    // A fold reads all its operands alike: hosts of one rank send what they have as it is.
    std::vector<int> raw, reduced;
    for (int host = 0; host < layout_.hosts(); ++host) {
      if (host == host_) continue;
      (layout_.ranks_on(host).size() == 1 ? raw : reduced).push_back(handler_on(host, rank_));
    }
    std::sort(reduced.begin(), reduced.end());
    if (!raw.empty()) fold(raw, place_among(raw), /*raw=*/true, &value);
    if (!reduced.empty()) fold(reduced, place_among(reduced), /*raw=*/false, &value);
    if (value.space == Space::kInput) plan_.copy(value, output(0));
    if (value.space != Space::kInput) plan_.steps.back().final = true;
  }

 private:
  // Who adds up `host`'s contributions to the block of rank `owner`.
  int handler_on(int host, int owner) const {
    if (layout_.host_of(owner) == host) return owner;
    return layout_.ranks_on(host)[layout_.local_index(owner) % layout_.smallest_host()];
  }

  BlockRange sum_for(int owner) {
    if (peers_.empty()) return input(owner);
    const BlockRange sum = plan_.add_scratch(1);
    plan_.partitions[static_cast<int>(Space::kScratch)].owners.push_back(owner);
    plan_.reduce(peers_, layout_.local_index(rank_), input(owner), sum).received_raw = true;
    return sum;
  }

  int place_among(const std::vector<int>& ranks) const {
    return static_cast<int>(std::lower_bound(ranks.begin(), ranks.end(), rank_) - ranks.begin());
  }

  void fold(const std::vector<int>& peers, int own_place, bool raw, BlockRange* value) {
    plan_.reduce(peers, own_place, *value, output(0)).received_raw = raw;
    *value = output(0);
  }

  const Layout& layout_;
  const int rank_;
  const int host_;
  const std::vector<int> peers_;
  Plan& plan_;
};

}  // namespace

Plan two_level_reduce_scatter(const Layout& layout, int rank) {
  const int size = layout.size();
  CIUIC_ASSERT(0 <= rank && rank < size);
  Plan plan;
  plan.partitions[0] = {size, Partition::Unit::kEach};
  plan.partitions[1] = {1, Partition::Unit::kEach, /*first=*/rank};
  plan.partitions[2].unit = Partition::Unit::kEach;
  plan.input_offset = -rank;
  Builder builder(layout, rank, &plan);
  builder.add_host_sums();
  builder.fold_own_block();
  plan.finish();
  return plan;
}

}  // namespace ciuic::plan
