// SPDX-License-Identifier: Apache-2.0
// ring_all_reduce.h: all-reduce round a ring.
#pragma once

#include "plan/plan.h"

namespace ciuic::plan {

Plan ring_all_reduce(const Layout& layout, int rank);

}  // namespace ciuic::plan
