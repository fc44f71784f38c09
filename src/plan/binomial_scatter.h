// SPDX-License-Identifier: Apache-2.0
// binomial_scatter.h: scatter down a binomial tree.
#pragma once

#include "plan/plan.h"

namespace ciuic::plan {

Plan binomial_scatter(const Layout& layout, int rank, int root);

}  // namespace ciuic::plan
