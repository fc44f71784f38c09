// SPDX-License-Identifier: Apache-2.0
// simulation.h: runs a scenario on real engines, and says what was wrong.
//
// Held in every run:
//   - every result is right, in every bit that the dtype lets be exact, and alike on all ranks;
//   - nothing outside the output is written, nor anything once the operation has ended;
//   - without a fault every operation ends, well, and every payload that was handed out is
//   released;
//   - with a fault every operation ends well, or in an error that names a rank, soon after the
//     deadline or the loss that it speaks of and not before;
//   - staging stays within its bound, and all of it comes back;
//   - no contract of transport::Link is broken.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/scenario.h"

namespace ciuic::sim {

struct Outcome {
  std::vector<std::string> failures;
  uint64_t digest = 0;  // of all events: equal in a replay
  TimeNs ended_at = 0;
  uint64_t steps = 0;
  int operations_ok = 0;     // counted on every rank
  int operations_ended = 0;  // in an error
  int survivor_groups = 0;
  std::vector<bool> happened;       // by fault of the scenario
  std::vector<std::string> errors;  // that groups have ended with

  bool ok() const { return failures.empty(); }
};

Outcome simulate(const Scenario& scenario);

}  // namespace ciuic::sim
