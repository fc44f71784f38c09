// SPDX-License-Identifier: Apache-2.0
// bruck_all_gather.h: all-gather in log2(n) rounds.
#pragma once

#include "plan/plan.h"

namespace ciuic::plan {

Plan bruck_all_gather(const Layout& layout, int rank);

}  // namespace ciuic::plan
