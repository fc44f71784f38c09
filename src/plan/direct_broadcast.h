// SPDX-License-Identifier: Apache-2.0
// direct_broadcast.h: broadcast in which all ranks read the root's buffer.
#pragma once

#include "plan/plan.h"

namespace ciuic::plan {

Plan direct_broadcast(const Layout& layout, int rank, int root);

}  // namespace ciuic::plan
