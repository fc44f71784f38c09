// SPDX-License-Identifier: Apache-2.0
// tuner.h: which algorithm a call gets. Pure: the same arguments give the same choice on all ranks.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ciuic/dtype.h"
#include "plan/layout.h"
#include "plan/registry.h"
#include "tuner/tuning_table.h"

namespace ciuic::tuner {

struct Call {
  plan::Operation operation = plan::Operation::kAllReduce;
  DataType dtype = DataType::kUInt8;
  ReduceOp op = ReduceOp::kSum;
  int64_t count = 0;  // elements, in the unit of the plans (plan::shape_of()); 0 in a barrier
  int root = 0;

  // Counts differ from rank to rank: only algorithms that take that are chosen. `count` is then all
  // ranks' together in all_gather and reduce_scatter; in others, where no rank knows all, it is not
  // looked at.
  bool uneven = false;
};

struct Choice {
  plan::Algorithm algorithm = plan::Algorithm::kDirect;
  size_t chunk_bytes = 0;  // a multiple of every element's size
};

// The algorithm fits the layout. On one host, and inside the hosts of any other layout, reductions
// are folds of all ranks at once, so that 16-bit floats are rounded once there.
Choice choose(const Call& call, const plan::Layout& layout, const TuningTable& table);

// The chunk size for an algorithm that somebody else has chosen.
size_t choose_chunk_bytes(const Call& call, plan::Algorithm algorithm, const plan::Layout& layout,
                          const TuningTable& table);

}  // namespace ciuic::tuner
