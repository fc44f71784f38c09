// SPDX-License-Identifier: Apache-2.0
// two_level_reduce.h: reduce inside hosts, then across them.
#pragma once

#include "plan/plan.h"

namespace ciuic::plan {

Plan two_level_reduce(const Layout& layout, int rank, int root);

}  // namespace ciuic::plan
