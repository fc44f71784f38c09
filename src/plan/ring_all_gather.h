// SPDX-License-Identifier: Apache-2.0
// ring_all_gather.h: all-gather round a ring.
#pragma once

#include "plan/plan.h"

namespace ciuic::plan {

Plan ring_all_gather(const Layout& layout, int rank);

}  // namespace ciuic::plan
