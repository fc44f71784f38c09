// SPDX-License-Identifier: Apache-2.0
// two_level_scatter.h: scatter by one message a host, then inside each host.
#pragma once

#include "plan/plan.h"

namespace ciuic::plan {

Plan two_level_scatter(const Layout& layout, int rank, int root);

}  // namespace ciuic::plan
