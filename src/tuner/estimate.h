// SPDX-License-Identifier: Apache-2.0
// estimate.h: how long an algorithm may take, by a formula: quick enough for every call.
//
// What cost.h predicts from the plans of all ranks, as near as choosing needs it. Whole numbers
// only, so that all ranks come to the same, whatever their processors.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/layout.h"
#include "plan/registry.h"
#include "tuner/tuner.h"
#include "tuner/tuning_table.h"

namespace ciuic::tuner {

// The algorithms that a call may get on a layout of more than one host. They take its counts, and
// need not much scratch, or work in parts. Of reductions, they fold each host at once.
std::vector<plan::Algorithm> candidates(const Call& call, const plan::Layout& layout,
                                        const TuningTable& table);

// Nanoseconds until the last rank is done. `algorithm` is one of the candidates.
int64_t estimated_ns(const Call& call, plan::Algorithm algorithm, const plan::Layout& layout,
                     const TuningTable& table);

}  // namespace ciuic::tuner
