// SPDX-License-Identifier: Apache-2.0
// rendezvous.h: whether plans end where nothing is buffered between two ranks.
#pragma once

#include <vector>

#include "ciuic/status.h"
#include "plan/matching.h"
#include "plan/plan.h"

namespace ciuic::plan {

// Runs the plans with `chunks` chunks a message; a chunk moves only when the step that receives it
// can use it, and its sender has it ready. What is possible stays possible, so that one order of
// events tells for all. kInvalidArgument names the ranks and steps that wait for each other.
Status check_rendezvous(const std::vector<Plan>& plans, const std::vector<Message>& messages,
                        int chunks);

}  // namespace ciuic::plan
