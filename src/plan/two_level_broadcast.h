// SPDX-License-Identifier: Apache-2.0
// two_level_broadcast.h: broadcast across hosts, then inside them.
#pragma once

#include "plan/plan.h"

namespace ciuic::plan {

Plan two_level_broadcast(const Layout& layout, int rank, int root);

}  // namespace ciuic::plan
