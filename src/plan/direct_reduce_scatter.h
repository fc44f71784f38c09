// SPDX-License-Identifier: Apache-2.0
// direct_reduce_scatter.h: reduce-scatter in which everyone folds its own block of all ranks.
#pragma once

#include "plan/plan.h"

namespace ciuic::plan {

Plan direct_reduce_scatter(const Layout& layout, int rank);

}  // namespace ciuic::plan
