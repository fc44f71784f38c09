// SPDX-License-Identifier: Apache-2.0
// recursive_halving_reduce_scatter.h: reduce-scatter by exchanging halves.
#pragma once

#include "plan/plan.h"

namespace ciuic::plan {

Plan recursive_halving_reduce_scatter(const Layout& layout, int rank);

}  // namespace ciuic::plan
