// SPDX-License-Identifier: Apache-2.0
// direct_reduce.h: reduce in which the root reads all buffers.
#pragma once

#include "plan/plan.h"

namespace ciuic::plan {

Plan direct_reduce(const Layout& layout, int rank, int root);

}  // namespace ciuic::plan
