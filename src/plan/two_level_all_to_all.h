// SPDX-License-Identifier: Apache-2.0
// two_level_all_to_all.h: all-to-all with one message between two hosts.
#pragma once

#include "plan/plan.h"

namespace ciuic::plan {

Plan two_level_all_to_all(const Layout& layout, int rank);

}  // namespace ciuic::plan
