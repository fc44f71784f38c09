// SPDX-License-Identifier: Apache-2.0
// races.h: whether the dependencies of a plan order all steps that must not run at once.
#pragma once

#include "ciuic/status.h"
#include "plan/plan.h"

namespace ciuic::plan {

// Looks at Step::after alone, however it came about. kInvalidArgument names two steps and a block.
// The plan has passed validate().
Status check_races(const Plan& plan, int rank);

}  // namespace ciuic::plan
