// SPDX-License-Identifier: Apache-2.0
// range_size.h: whether two ranges of blocks have the same number of elements, for every count.
#pragma once

#include "plan/plan.h"

namespace ciuic::plan {

// In lowest terms, so that equal sizes are equal values: `whole` times the call's count, or from
// floor(begin * count / parts) to floor(end * count / parts).
struct RangeSize {
  int whole = 0;
  int begin = 0;
  int end = 0;
  int parts = 0;  // 0: `whole` says it all
  bool operator==(const RangeSize&) const = default;
};

RangeSize size_of(const Plan& plan, BlockRange range);

// What the step moves: its source, or target where it has no source.
BlockRange moved(const Step& step);

}  // namespace ciuic::plan
