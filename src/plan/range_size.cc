// SPDX-License-Identifier: Apache-2.0
// range_size.cc: whether two ranges of blocks have the same number of elements, for every count.

#include "plan/range_size.h"

#include <numeric>

namespace ciuic::plan {

RangeSize size_of(const Plan& plan, BlockRange range) {
  const Partition& partition = plan.partitions[static_cast<int>(range.space)];
  if (range.count == 0) return {};
  if (partition.unit == Partition::Unit::kEach) return {range.count, 0, 0, 0};
  if (range.count == partition.blocks) return {1, 0, 0, 0};
  const int end = range.first + range.count;
  const int common = std::gcd(std::gcd(range.first, end), partition.blocks);
  return {0, range.first / common, end / common, partition.blocks / common};
}

BlockRange moved(const Step& step) {
  return step.kind == StepKind::kReceive ? step.target : step.source;
}

}  // namespace ciuic::plan
