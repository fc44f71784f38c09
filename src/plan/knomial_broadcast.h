// SPDX-License-Identifier: Apache-2.0
// knomial_broadcast.h: broadcast down a tree of hosts with radix 4.
#pragma once

#include "plan/plan.h"

namespace ciuic::plan {

Plan knomial_broadcast(const Layout& layout, int rank, int root);

}  // namespace ciuic::plan
