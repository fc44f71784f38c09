// SPDX-License-Identifier: Apache-2.0
// two_shot_all_reduce.h: all-reduce in which every rank adds up its own part.
#pragma once

#include "plan/plan.h"

namespace ciuic::plan {

Plan two_shot_all_reduce(const Layout& layout, int rank);

}  // namespace ciuic::plan
