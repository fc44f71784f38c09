// SPDX-License-Identifier: Apache-2.0
// two_shot_reduce.h: reduce in which every rank adds up its own part for the root.
#pragma once

#include "plan/plan.h"

namespace ciuic::plan {

Plan two_shot_reduce(const Layout& layout, int rank, int root);

}  // namespace ciuic::plan
