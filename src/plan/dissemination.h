// SPDX-License-Identifier: Apache-2.0
// dissemination.h: the rounds of a barrier among some ranks, in which knowledge doubles.
#pragma once

#include <vector>

#include "plan/plan.h"

namespace ciuic::plan {

// Blocks of scratch are tokens, without bytes in a barrier (count is 0): they say what must have
// been heard before a message goes out. Takes the token in scratch(token), and returns the number
// of the one that is complete when all of `ranks` were heard from.
int add_dissemination(Plan* plan, const std::vector<int>& ranks, int place, int token);

}  // namespace ciuic::plan
