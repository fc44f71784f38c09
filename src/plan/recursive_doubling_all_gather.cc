// SPDX-License-Identifier: Apache-2.0
// recursive_doubling_all_gather.cc: all-gather by exchanging all that two ranks have, with partners
// at distances 1, 2, 4, ...
//
//   steps    log2(n) exchanges; where n is no power of two, the second rank of a pair gives its
//            block to the first one before, and gets all others last
//   sends    n - 1 blocks from each rank
//   use for  small blocks across hosts whose number is a power of two
//   source   Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations
//            in MPICH", Int. J. High Perform. Comput. Appl. 19 (2005)

#include "plan/recursive_doubling_all_gather.h"

#include <algorithm>

#include "base/assert.h"
#include "plan/doubling.h"

namespace ciuic::plan {

// The blocks of the ranks that groups [first, first + groups) stand for: they lie one after
// another.
static BlockRange blocks_of(const Doubling& doubling, int first, int groups) {
  const auto before = [&](int group) { return group + std::min(group, doubling.extras); };
  return outputs(before(first), before(first + groups) - before(first));
}

Plan recursive_doubling_all_gather(const Layout& layout, int rank) {
  const int size = layout.size();
  CIUIC_ASSERT(0 <= rank && rank < size);
  Plan plan;
  plan.partitions[0] = {1, Partition::Unit::kEach, /*first=*/rank};
  plan.partitions[1] = {size, Partition::Unit::kEach};
  plan.input_offset = rank;
  const Doubling doubling(size);
  if (doubling.waits(rank)) plan.send({rank - 1}, input(0));
  plan.copy(input(0), output(rank));
  if (doubling.waits(rank)) {
    plan.receive(rank - 1, outputs(0, rank));
    if (rank + 1 < size) plan.receive(rank - 1, outputs(rank + 1, size - rank - 1));
    plan.finish();
    return plan;
  }
  const bool paired = doubling.paired(rank);
  if (paired) plan.receive(rank + 1, output(rank + 1));
  const int group = doubling.group_of(rank);
  for (int distance = 1; distance < doubling.power; distance *= 2) {
    const int first = group / distance * distance;
    const int other = doubling.place_of(group ^ distance);
    const BlockRange given = blocks_of(doubling, first, distance);
    plan.send({other}, given.count == 1 ? input(0) : given);
    plan.receive(other, blocks_of(doubling, first ^ distance, distance));
  }
  if (paired) {
    plan.send({rank + 1}, outputs(0, rank + 1));
    if (rank + 2 < size) plan.send({rank + 1}, outputs(rank + 2, size - rank - 2));
  }
  plan.finish();
  return plan;
}

}  // namespace ciuic::plan
