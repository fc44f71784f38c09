// SPDX-License-Identifier: Apache-2.0
// two_level_all_reduce.cc: all-reduce inside each host, then across hosts, then back inside.
//
// The buffer is cut into shards. On each host, the rank with local index s adds up shard s of its
// host in rank order; the ranks with index s of all hosts all-reduce it, by doubling or round a
// ring; each shows the result to its host. Hosts may have any numbers of ranks: those beyond the
// smallest host's number own no shard.
//
//   steps    inside as in two_shot_all_reduce.cc, across as in recursive_doubling_all_reduce.cc or
//            ring_all_reduce.cc
//   sends    across hosts, all ranks of a host together: 2 (h - 1) / h of the buffer by the ring,
//            log2(h) buffers by doubling
//   use for  several hosts with several ranks. 16-bit floats are rounded once a host, then once a
//            hop
//   source   Jia et al., "Highly scalable deep learning training system with mixed-precision:
//            training ImageNet in four minutes", arXiv 1807.11205 (2018)

#include "plan/two_level_all_reduce.h"

#include <algorithm>

#include "base/assert.h"
#include "plan/hosts.h"
#include "plan/members.h"
#include "plan/peers.h"

namespace ciuic::plan {

namespace {

constexpr int kResultLane = 1;  // results overtake the inputs of later chunks

class Builder {
 public:
  Builder(const Layout& layout, int rank, int shards, Across across)
      : layout_(layout),
        rank_(rank),
        local_(layout.ranks_on(layout.host_of(rank))),
        shards_(shards),
        across_(across),
        blocks_in_shard_(across == Across::kRing ? layout.hosts() : 1) {}

  Plan build() {
    for (Partition& partition : plan_.partitions) {
      partition = {shards_ * blocks_in_shard_, Partition::Unit::kSplit};
    }
    if (across_ == Across::kRing) plan_.partitions[static_cast<int>(Space::kScratch)] = {};
    const int index = layout_.local_index(rank_);
    // Ranks begin with different owners, or all would send to the first one first.
    for (int distance = 1; distance <= shards_; ++distance) {
      const int owner = around(index + distance, shards_);
      if (owner != index) send_inputs(owner);
    }
    if (index < shards_) reduce_shard(index);
    for (int distance = 1; distance <= shards_; ++distance) {
      const int owner = around(index - distance, shards_);
      if (owner != index) receive_results(owner);
    }
    plan_.finish();
    return std::move(plan_);
  }

 private:
  // Blocks of a shard, in the order in which this host's ring needs them.
  int block_at(int shard, int place) const {
    const int first = layout_.host_of(rank_);
    return shard * blocks_in_shard_ + around(first - place, blocks_in_shard_);
  }

  void send_inputs(int shard) {
    for (int place = 0; place < blocks_in_shard_; ++place) {
      plan_.send({local_[shard]}, input(block_at(shard, place)));
    }
  }

  void receive_results(int shard) {
    for (int place = 0; place < blocks_in_shard_; ++place) {
      plan_.receive(local_[shard], output(block_at(shard, place - 1)), kResultLane);
    }
  }

  void reduce_shard(int shard) {
    const Members members = host_members(layout_, rank_, shard);
    const std::vector<int> peers = others(local_, rank_);
    const bool alone = peers.empty();
    BlockRange value = input(block_at(shard, 0));
    for (int place = 0; !alone && place < blocks_in_shard_; ++place) {
      const int block = block_at(shard, place);
      value = across_ == Across::kRing ? output(block) : first_place(members, block);
      Step& fold = plan_.reduce(peers, /*own_place=*/shard, input(block), value);
      fold.received_raw = true;
      fold.final = members.size() == 1;
    }
    if (members.size() == 1) {
      if (alone) plan_.copy(value, output(block_at(shard, 0)));
    } else if (across_ == Across::kRing) {
      add_ring(&plan_, members, shard * blocks_in_shard_, /*reduced=*/!alone);
    } else {
      add_recursive_doubling(&plan_, members, shard, value);
    }
    if (alone) return;
    // The ring ends with the block after this host's own first: that is complete first.
    for (int place = 0; place < blocks_in_shard_; ++place) {
      plan_.send(peers, output(block_at(shard, place - 1)), kResultLane);
    }
  }

  const Layout& layout_;
  const int rank_;
  const std::vector<int>& local_;
  const int shards_;
  const Across across_;
  const int blocks_in_shard_;
  Plan plan_;
};

}  // namespace

Plan two_level_all_reduce(const Layout& layout, int rank, int shards, Across across) {
  CIUIC_ASSERT(0 <= rank && rank < layout.size());
  CIUIC_ASSERT(1 <= shards && shards <= layout.smallest_host());
  return Builder(layout, rank, shards, across).build();
}

}  // namespace ciuic::plan
