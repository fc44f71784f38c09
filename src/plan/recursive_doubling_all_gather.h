// SPDX-License-Identifier: Apache-2.0
// recursive_doubling_all_gather.h: all-gather by exchanges at distances 1, 2, 4, ...
#pragma once

#include "plan/plan.h"

namespace ciuic::plan {

Plan recursive_doubling_all_gather(const Layout& layout, int rank);

}  // namespace ciuic::plan
