// SPDX-License-Identifier: Apache-2.0
// bruck_all_to_all.cc: all-to-all in log2(n) rounds, in each of which half of all blocks move on.
//
// Block d of a rank is what must travel d ranks round. In the round of bit b, all blocks with that
// bit in d go to the rank 2^b further on, packed into one message; so block d of a rank has come
// from d ranks back when all rounds are over.
//
//   steps    log2(n) exchanges, and about 3 n copies of a block
//   sends    log2(n) / 2 inputs from each rank
//   use for  small blocks across many hosts
//   source   Bruck et al., "Efficient algorithms for all-to-all communications in multiport
//            message-passing systems", IEEE Trans. Parallel Distrib. Syst. 8 (1997)

#include "plan/bruck_all_to_all.h"

#include "base/assert.h"
#include "plan/peers.h"

namespace ciuic::plan {

namespace {

class Builder {
 public:
  Builder(int size, int rank, Plan* plan) : size_(size), rank_(rank), plan_(*plan) {
    for (int distance = 0; distance < size; ++distance) {
      place_.push_back(input(around(rank + distance, size)));
    }
  }

  // The highest bit first: its blocks lie one after another.
  void run() {
    int bit = 1;
    while (2 * bit < size_) bit *= 2;
    for (; size_ > 1 && bit >= 1; bit /= 2) exchange(bit);
    for (int distance = 0; distance < size_; ++distance) {
      plan_.copy(place_[distance], output(around(rank_ - distance, size_)));
    }
  }

 private:
  void exchange(int bit) {
    std::vector<int> moving;
    for (int distance = 0; distance < size_; ++distance) {
      if ((distance & bit) != 0) moving.push_back(distance);
    }
    const int count = static_cast<int>(moving.size());
    const BlockRange leaving = plan_.add_scratch(count);
    const BlockRange coming = plan_.add_scratch(count);
    for (int index = 0; index < count;) {
      const BlockRange run = run_from(moving, index);
      plan_.copy(run, leaving.part(index, run.count));
      index += run.count;
    }
    plan_.send({around(rank_ + bit, size_)}, leaving);
    plan_.receive(around(rank_ - bit, size_), coming);
    for (int index = 0; index < count; ++index) place_[moving[index]] = coming.part(index, 1);
  }

  // The blocks from moving[index] on that lie one after another.
  BlockRange run_from(const std::vector<int>& moving, int index) const {
    BlockRange run = place_[moving[index]];
    for (size_t next = index + 1; next < moving.size(); ++next) {
      const BlockRange& place = place_[moving[next]];
      if (place.space != run.space || place.first != run.first + run.count) break;
      ++run.count;
    }
    return run;
  }

  const int size_;
  const int rank_;
  Plan& plan_;
  std::vector<BlockRange> place_;  // of each block
};

}  // namespace

Plan bruck_all_to_all(const Layout& layout, int rank) {
  const int size = layout.size();
  CIUIC_ASSERT(0 <= rank && rank < size);
  Plan plan;
  for (Partition& partition : plan.partitions) partition = {size, Partition::Unit::kEach};
  plan.partitions[2].blocks = 0;
  plan.allows_in_place = false;
  Builder(size, rank, &plan).run();
  plan.finish();
  return plan;
}

}  // namespace ciuic::plan
