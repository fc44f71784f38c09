// SPDX-License-Identifier: Apache-2.0
// one_shot_all_reduce.h: all-reduce in which every rank reads all whole buffers.
#pragma once

#include "plan/plan.h"

namespace ciuic::plan {

Plan one_shot_all_reduce(const Layout& layout, int rank);

}  // namespace ciuic::plan
