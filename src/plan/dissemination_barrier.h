// SPDX-License-Identifier: Apache-2.0
// dissemination_barrier.h: barrier in log2(n) rounds.
#pragma once

#include "plan/plan.h"

namespace ciuic::plan {

Plan dissemination_barrier(const Layout& layout, int rank);

}  // namespace ciuic::plan
