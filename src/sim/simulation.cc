// SPDX-License-Identifier: Apache-2.0
// simulation.cc: a scenario becomes a run.

#include "sim/simulation.h"

#include "sim/run.h"

namespace ciuic::sim {

Outcome simulate(const Scenario& scenario) { return Run(scenario).run(); }

}  // namespace ciuic::sim
