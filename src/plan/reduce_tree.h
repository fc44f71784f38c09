// SPDX-License-Identifier: Apache-2.0
// reduce_tree.h: some ranks of a group reduce their values to one of them, up a binomial tree.
#pragma once

#include "plan/members.h"
#include "plan/plan.h"

namespace ciuic::plan {

// `value` is where this rank's contribution stands. Member number `root` gets the sum in output(0),
// the others use scratch(0).
void add_reduce_tree(Plan* plan, const Members& members, int root, BlockRange value);

}  // namespace ciuic::plan
