// SPDX-License-Identifier: Apache-2.0
// control_settings.h: who is in a control plane, and its times.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "base/clock.h"

namespace ciuic::control {

struct Settings {
  int rank = 0;
  std::vector<std::string> names;  // by rank: "rank 3 (host node7, process 4711)"

  TimeNs heartbeat = 1'000'000'000;
  TimeNs lost_after = kNever;            // silence, after which a rank is lost
  TimeNs ask_after = 1'000'000'000;      // waiting for one operation, before the others are asked
  TimeNs warn_after = 10'000'000'000;    // and before the answer is logged
  TimeNs answer_within = 500'000'000;    // what the hub allows for answers
  TimeNs decide_within = 2'000'000'000;  // what a rank allows the hub for a decision
  TimeNs orphan_after = 500'000'000;     // what operations may still take where the hub is lost

  int size() const { return static_cast<int>(names.size()); }

  // Silence that is worth a word: some heartbeats did not come.
  TimeNs silent_after() const { return 4 * heartbeat; }

  // For a communicator whose operations may take so long.
  static Settings for_timeout(int64_t timeout_ms) {
    constexpr TimeNs kMs = 1'000'000;
    const TimeNs timeout = deadline_after(0, timeout_ms);
    Settings settings;
    settings.heartbeat = std::clamp(timeout / 16, 20 * kMs, settings.heartbeat);
    settings.lost_after = std::max(timeout, 2 * settings.silent_after());
    settings.ask_after = std::min(timeout / 8, settings.ask_after);
    settings.warn_after = std::min(timeout / 4, settings.warn_after);
    return settings;
  }
};

}  // namespace ciuic::control
