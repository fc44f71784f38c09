// SPDX-License-Identifier: Apache-2.0
// direct_barrier.h: barrier in which every rank tells all others.
#pragma once

#include "plan/plan.h"

namespace ciuic::plan {

Plan direct_barrier(const Layout& layout, int rank);

}  // namespace ciuic::plan
