// SPDX-License-Identifier: Apache-2.0
// two_level_gather.h: gather inside each host, then one message a host.
#pragma once

#include "plan/plan.h"

namespace ciuic::plan {

Plan two_level_gather(const Layout& layout, int rank, int root);

}  // namespace ciuic::plan
