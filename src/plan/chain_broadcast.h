// SPDX-License-Identifier: Apache-2.0
// chain_broadcast.h: broadcast along a chain of hosts.
#pragma once

#include "plan/plan.h"

namespace ciuic::plan {

Plan chain_broadcast(const Layout& layout, int rank, int root);

}  // namespace ciuic::plan
