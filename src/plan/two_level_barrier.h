// SPDX-License-Identifier: Apache-2.0
// two_level_barrier.h: barrier inside hosts, then across them.
#pragma once

#include "plan/plan.h"

namespace ciuic::plan {

Plan two_level_barrier(const Layout& layout, int rank);

}  // namespace ciuic::plan
