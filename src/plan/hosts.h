// SPDX-License-Identifier: Apache-2.0
// hosts.h: the ranks that stand for their hosts in algorithms of two levels.
#pragma once

#include <vector>

#include "plan/layout.h"
#include "plan/members.h"
#include "plan/plan.h"

namespace ciuic::plan {

// The ranks with local index `index`, one a host, in the order of hosts. Every host must have one.
Members host_members(const Layout& layout, int rank, int index);

// One rank a host for an operation with a root: the root on its host, elsewhere the lowest rank.
// `place` is the host of `rank`, whether it leads that or not.
Members host_leaders(const Layout& layout, int rank, int root);

// The broadcast in which the root's host and then each host's leader passes the value on, and shows
// it to all of its host at once. `parent` is the host that this one has it from (not looked at on
// the root's), `children` are those that it gives it to, in this order.
Plan broadcast_between_hosts(const Layout& layout, int rank, int root, int parent,
                             const std::vector<int>& children);

// On a leader, the sum of its host: folded into `sum`, or its input, where it is there alone.
BlockRange add_host_sum(Plan* plan, const Layout& layout, int rank, BlockRange sum);

}  // namespace ciuic::plan
