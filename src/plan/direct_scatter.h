// SPDX-License-Identifier: Apache-2.0
// direct_scatter.h: scatter in which the root sends every rank its block.
#pragma once

#include "plan/plan.h"

namespace ciuic::plan {

Plan direct_scatter(const Layout& layout, int rank, int root);

}  // namespace ciuic::plan
