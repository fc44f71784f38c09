// SPDX-License-Identifier: Apache-2.0
// recursive_halving_reduce_scatter.cc: reduce-scatter in which two ranks exchange halves of what
// is still theirs, at distances n / 2, n / 4, ... 1.
//
//   steps    log2(n) exchanges; where n is no power of two, pairs of ranks fold into one first and
//            the second of a pair gets its block last
//   sends    (n - 1) / n of the input from each rank; up to twice that where n is no power of two
//   use for  small and middle-sized blocks across hosts
//   source   Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations
//            in MPICH", Int. J. High Perform. Comput. Appl. 19 (2005)

#include "plan/recursive_halving_reduce_scatter.h"

#include <algorithm>

#include "base/assert.h"
#include "plan/doubling.h"

namespace ciuic::plan {

// The blocks of the ranks that groups [first, first + groups) stand for: they lie one after
// another.
static BlockRange blocks_of(const Doubling& doubling, Space space, int first, int groups) {
  const auto before = [&](int group) { return group + std::min(group, doubling.extras); };
  return {space, before(first), before(first + groups) - before(first)};
}

Plan recursive_halving_reduce_scatter(const Layout& layout, int rank) {
  const int size = layout.size();
  CIUIC_ASSERT(0 <= rank && rank < size);
  Plan plan;
  plan.partitions[0] = {size, Partition::Unit::kEach};
  plan.partitions[1] = {1, Partition::Unit::kEach, /*first=*/rank};
  plan.partitions[2] = {size, Partition::Unit::kEach};
  plan.input_offset = -rank;
  const Doubling doubling(size);
  if (size == 1) plan.copy(input(0), output(0));
  if (doubling.waits(rank)) {
    plan.send({rank - 1}, inputs(0, size));
    plan.receive(rank - 1, output(0));
    plan.finish();
    return plan;
  }
  const bool paired = doubling.paired(rank);
  Space value = Space::kInput;
  if (paired) {
    plan.reduce({rank + 1}, /*own_place=*/0, inputs(0, size), scratches(0, size)).received_raw =
        true;
    value = Space::kScratch;
  }
  const int group = doubling.group_of(rank);
  int first = 0;
  for (int half = doubling.power / 2; half >= 1; half /= 2) {
    const int other_group = group ^ half;
    const int other = doubling.place_of(other_group);
    const bool upper = other_group < group;
    const int mine = upper ? first + half : first;
    const BlockRange given = blocks_of(doubling, value, upper ? first : first + half, half);
    const BlockRange kept = blocks_of(doubling, value, mine, half);
    // In the last round each block is a message, for the first of a pair takes two apart.
    const int messages = half == 1 ? 2 : 1;
    for (int part = 0; part < messages && part < given.count; ++part) {
      plan.send({other}, half == 1 ? given.part(part, 1) : given);
    }
    for (int part = 0; part < messages && part < kept.count; ++part) {
      const BlockRange own = half == 1 ? kept.part(part, 1) : kept;
      const bool here = half == 1 && own.first == rank;
      Step& fold =
          plan.reduce({other}, /*own_place=*/upper ? 1 : 0, own,
                      here ? output(0) : BlockRange{Space::kScratch, own.first, own.count});
      fold.received_raw = half == doubling.power / 2 && !doubling.paired(other);
      fold.final = half == 1;
    }
    value = Space::kScratch;
    first = mine;
  }
  if (paired) plan.send({rank + 1}, scratch(rank + 1));
  plan.finish();
  return plan;
}

}  // namespace ciuic::plan
