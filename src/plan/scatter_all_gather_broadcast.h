// SPDX-License-Identifier: Apache-2.0
// scatter_all_gather_broadcast.h: broadcast as a scatter, then an all-gather.
#pragma once

#include "plan/plan.h"

namespace ciuic::plan {

Plan scatter_all_gather_broadcast(const Layout& layout, int rank, int root);

}  // namespace ciuic::plan
