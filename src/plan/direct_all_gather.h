// SPDX-License-Identifier: Apache-2.0
// direct_all_gather.h: all-gather in which every rank reads all others.
#pragma once

#include "plan/plan.h"

namespace ciuic::plan {

Plan direct_all_gather(const Layout& layout, int rank);

}  // namespace ciuic::plan
