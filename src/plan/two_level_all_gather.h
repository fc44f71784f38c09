// SPDX-License-Identifier: Apache-2.0
// two_level_all_gather.h: all-gather inside hosts and round a ring of hosts.
#pragma once

#include "plan/plan.h"

namespace ciuic::plan {

Plan two_level_all_gather(const Layout& layout, int rank);

}  // namespace ciuic::plan
