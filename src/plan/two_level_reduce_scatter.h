// SPDX-License-Identifier: Apache-2.0
// two_level_reduce_scatter.h: reduce-scatter inside each host, then across hosts.
#pragma once

#include "plan/plan.h"

namespace ciuic::plan {

Plan two_level_reduce_scatter(const Layout& layout, int rank);

}  // namespace ciuic::plan
