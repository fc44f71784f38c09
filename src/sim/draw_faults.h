// SPDX-License-Identifier: Apache-2.0
// draw_faults.h: what goes wrong in a scenario that is otherwise drawn.
#pragma once

#include <optional>

#include "sim/random.h"
#include "sim/scenario.h"

namespace ciuic::sim {

// Faults, and how much time the calls have.
void draw_faults(Random* random, const ScenarioOptions& options, Scenario* scenario);

// What a rank that is mistaken in one way calls instead of `call`; nothing where such a mistake
// would not show, as that of a root where there is none.
std::optional<Call> otherwise(const Call& call, OtherCall lie, int ranks);

}  // namespace ciuic::sim
