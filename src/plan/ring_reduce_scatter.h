// SPDX-License-Identifier: Apache-2.0
// ring_reduce_scatter.h: reduce-scatter round a ring.
#pragma once

#include "plan/plan.h"

namespace ciuic::plan {

Plan ring_reduce_scatter(const Layout& layout, int rank);

}  // namespace ciuic::plan
