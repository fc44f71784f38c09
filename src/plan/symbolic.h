// SPDX-License-Identifier: Apache-2.0
// symbolic.h: what stands in every rank's output when the plans have run, as expressions.
#pragma once

#include <vector>

#include "ciuic/status.h"
#include "plan/matching.h"
#include "plan/plan.h"
#include "plan/prover.h"

namespace ciuic::plan {

// Runs the plans on expressions, out of place and in place, and compares what comes out with the
// claim. The plans are well formed, matched and free of races, so that one order tells for all.
Status check_values(const Claim& claim, const std::vector<Plan>& plans,
                    const std::vector<Message>& messages);

// Whether each host's contributions to an all-reduce or reduce are folded in one step, and so
// rounded once, wherever several ranks of it take part. The plans are proved.
bool rounds_once_a_host(const Claim& claim, const std::vector<Plan>& plans, const Layout& layout);

}  // namespace ciuic::plan
