// SPDX-License-Identifier: Apache-2.0
// recursive_doubling_all_reduce.h: all-reduce by exchanging whole buffers, log2(n) times.
#pragma once

#include "plan/plan.h"

namespace ciuic::plan {

Plan recursive_doubling_all_reduce(const Layout& layout, int rank);

}  // namespace ciuic::plan
