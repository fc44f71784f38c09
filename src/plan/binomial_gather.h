// SPDX-License-Identifier: Apache-2.0
// binomial_gather.h: gather up a binomial tree.
#pragma once

#include "plan/plan.h"

namespace ciuic::plan {

Plan binomial_gather(const Layout& layout, int rank, int root);

}  // namespace ciuic::plan
