// SPDX-License-Identifier: Apache-2.0
// binomial_reduce.h: reduce up a binomial tree.
#pragma once

#include "plan/plan.h"

namespace ciuic::plan {

Plan binomial_reduce(const Layout& layout, int rank, int root);

}  // namespace ciuic::plan
