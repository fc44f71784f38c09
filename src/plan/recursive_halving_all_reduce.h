// SPDX-License-Identifier: Apache-2.0
// recursive_halving_all_reduce.h: all-reduce by halving, then doubling.
#pragma once

#include "plan/plan.h"

namespace ciuic::plan {

Plan recursive_halving_all_reduce(const Layout& layout, int rank);

}  // namespace ciuic::plan
