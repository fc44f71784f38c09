// SPDX-License-Identifier: Apache-2.0
// process.h: one simulated process: its engine, its members of groups, and how it waits.
#pragma once

#include <memory>
#include <vector>

#include "engine/engine.h"
#include "memory/staging_pool.h"
#include "sim/caller.h"
#include "sim/member.h"

namespace ciuic::sim {

struct Process {
  Process() : staging(size_t{1} << 26), engine(&staging) {}

  // Whether all calls of all groups have been made and have ended.
  bool is_finished() const {
    for (const auto& caller : callers) {
      if (!caller->is_finished()) return false;
    }
    return true;
  }
  bool is_stopped(TimeNs now) const { return now >= stopped_from && now < stopped_until; }
  bool is_gone(TimeNs now) const {  // for good
    return dead || (now >= stopped_from && stopped_until == kNever);
  }

  memory::StagingPool staging;
  engine::Engine engine;
  std::vector<std::unique_ptr<Member>> members;
  std::vector<std::unique_ptr<Caller>> callers;

  bool dead = false;
  TimeNs stopped_from = kNever;
  TimeNs stopped_until = kNever;
  bool counts = true;  // among those that have not finished

  // The thread that calls and drives.
  TimeNs not_before = 0;
  TimeNs idle = 0;          // how long it last waited, as nothing moved
  TimeNs asks_at = -1;      // a wake of its own is on its way for then
  TimeNs deadline_at = -1;  // and one for the engine's deadline
  size_t most_staging = 0;

  // The control thread.
  TimeNs control_not_before = 0;
  TimeNs control_at = -1;  // a wake of its own is on its way for then
};

}  // namespace ciuic::sim
