// SPDX-License-Identifier: Apache-2.0
// validate.h: whether one rank's plan is well formed: what can be said without the others' plans.
#pragma once

#include <string>

#include "ciuic/status.h"
#include "plan/plan.h"

namespace ciuic::plan {

// What no plan exceeds, whoever made it.
inline constexpr int kMaxBlocks = 1 << 16;
inline constexpr int kMaxSteps = 1 << 15;
inline constexpr int kMaxLane = 255;              // a byte in the wire header
inline constexpr int kMaxStreamMessages = 65535;  // two bytes

// kInvalidArgument names the rank, the step and what is wrong: a peer outside the group, a block
// out of bounds, a step that writes the input, or operands that overlap in part. Looks at what
// algorithms and files say, not at what finish() fills in.
Status validate(const Plan& plan, int size, int rank);

// "step 3 (reduce from 1,2 of output 0..1 into output 0..1)", for messages.
std::string step_text(const Plan& plan, int step);

const char* name_of(StepKind kind);  // "send", ...
const char* name_of(Space space);    // "input", ...

}  // namespace ciuic::plan
