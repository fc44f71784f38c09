// SPDX-License-Identifier: Apache-2.0
// chain_reduce.h: reduce along a chain of hosts.
#pragma once

#include "plan/plan.h"

namespace ciuic::plan {

Plan chain_reduce(const Layout& layout, int rank, int root);

}  // namespace ciuic::plan
