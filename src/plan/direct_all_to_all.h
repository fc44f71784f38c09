// SPDX-License-Identifier: Apache-2.0
// direct_all_to_all.h: all-to-all in which every rank sends each other its block.
#pragma once

#include "plan/plan.h"

namespace ciuic::plan {

Plan direct_all_to_all(const Layout& layout, int rank);

}  // namespace ciuic::plan
