// SPDX-License-Identifier: Apache-2.0
// two_level_all_to_all.cc: all-to-all in which each host sends each other host one message.
//
// For each other host, one rank of this host collects what all of its host have for all of that
// one, and sends it to a rank there, which passes it on. The ranks of a host take turns.
//
//   steps    about 3 n
//   sends    across hosts (h - 1) / h of the input from all ranks of a host together, in h - 1
//            messages; inside, everything about twice
//   use for  small blocks, on several hosts, some with several ranks
//   source   Karonis et al., "Exploiting hierarchy in parallel computer networks to optimize
//            collective operation performance", IPDPS 2000

#include "plan/two_level_all_to_all.h"

#include "base/assert.h"
#include "plan/peers.h"

namespace ciuic::plan {

namespace {

constexpr int kCollectLane = 1;
constexpr int kAcrossLane = 2;
constexpr int kDeliverLane = 3;

class Builder {
 public:
  Builder(const Layout& layout, int rank, Plan* plan)
      : layout_(layout),
        rank_(rank),
        host_(layout.host_of(rank)),
        local_(layout.ranks_on(host_)),
        plan_(*plan) {}

  void exchange_inside() {
    const int place = layout_.local_index(rank_);
    const int size = static_cast<int>(local_.size());
    for (int distance = 1; distance < size; ++distance) {
      const int to = local_[around(place + distance, size)];
      const int from = local_[around(place - distance, size)];
      plan_.send({to}, input(to));
      plan_.receive(from, output(from));
    }
    plan_.copy(input(rank_), output(rank_));
  }

  void exchange_across() {
    for (int distance = 1; distance < layout_.hosts(); ++distance) {
      send_to(around(host_ + distance, layout_.hosts()), distance);
    }
    for (int distance = 1; distance < layout_.hosts(); ++distance) {
      receive_from(around(host_ - distance, layout_.hosts()), distance);
    }
  }

 private:
  // Who on `host` handles the message between two hosts that are `distance` apart.
  int handler(int host, int distance) const {
    const std::vector<int>& ranks = layout_.ranks_on(host);
    return ranks[around(distance - 1, static_cast<int>(ranks.size()))];
  }

  // A message has the blocks for the first rank there, from all ranks here, then for the next one.
  void send_to(int host, int distance) {
    const int collector = handler(host_, distance);
    const std::vector<int>& there = layout_.ranks_on(host);
    if (collector != rank_) {
      for (const int to : there) plan_.send({collector}, input(to), kCollectLane);
      return;
    }
    const BlockRange message = add_message(there);
    int block = 0;
    for (const int to : there) {
      for (const int from : local_) {
        const BlockRange place = message.part(block++, 1);
        if (from == rank_) {
          plan_.copy(input(to), place);
        } else {
          plan_.receive(from, place, kCollectLane);
        }
      }
    }
    plan_.send({handler(host, distance)}, message, kAcrossLane);
  }

  void receive_from(int host, int distance) {
    const int collector = handler(host_, distance);
    const std::vector<int>& there = layout_.ranks_on(host);
    const std::vector<BlockRange> runs = runs_of(there, Space::kOutput);
    if (collector != rank_) {
      for (const BlockRange& run : runs) plan_.receive(collector, run, kDeliverLane);
      return;
    }
    const BlockRange message = add_message(there);
    plan_.receive(handler(host, distance), message, kAcrossLane);
    int block = 0;
    for (const int to : local_) {
      for (const BlockRange& run : runs) {
        const BlockRange part = message.part(block, run.count);
        block += run.count;
        if (to == rank_) {
          plan_.copy(part, run);
        } else {
          plan_.send({to}, part, kDeliverLane);
        }
      }
    }
  }

  // From all ranks of one of two hosts to all of the other.
  BlockRange add_message(const std::vector<int>& there) {
    return plan_.add_scratch(static_cast<int>(there.size() * local_.size()));
  }

  const Layout& layout_;
  const int rank_;
  const int host_;
  const std::vector<int>& local_;
  Plan& plan_;
};

}  // namespace

Plan two_level_all_to_all(const Layout& layout, int rank) {
  const int size = layout.size();
  CIUIC_ASSERT(0 <= rank && rank < size);
  Plan plan;
  for (Partition& partition : plan.partitions) partition = {size, Partition::Unit::kEach};
  plan.partitions[2].blocks = 0;
  plan.allows_in_place = false;
  Builder builder(layout, rank, &plan);
  builder.exchange_inside();
  builder.exchange_across();
  plan.finish();
  return plan;
}

}  // namespace ciuic::plan
