// SPDX-License-Identifier: Apache-2.0
// hosts.h: the ranks that stand for their hosts in algorithms of two levels.
#pragma once

#include "plan/layout.h"
#include "plan/members.h"

namespace ciuic::plan {

// The ranks with local index `index`, one a host, in the order of hosts. Every host must have one.
Members host_members(const Layout& layout, int rank, int index);

// One rank a host for an operation with a root: the root on its host, elsewhere the lowest rank.
// `place` is the host of `rank`, whether it leads that or not.
Members host_leaders(const Layout& layout, int rank, int root);

}  // namespace ciuic::plan
