// SPDX-License-Identifier: Apache-2.0
// direct_gather.h: gather in which every rank sends its block to the root.
#pragma once

#include "plan/plan.h"

namespace ciuic::plan {

Plan direct_gather(const Layout& layout, int rank, int root);

}  // namespace ciuic::plan
