// SPDX-License-Identifier: Apache-2.0
// record.h: what happened in a run, as far as its judgement looks at it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "ciuic/status.h"
#include "sim/fault.h"
#include "sim/scenario.h"

namespace ciuic::sim {

// One call on one rank.
struct CallRecord {
  TimeNs called_at = kNever;
  TimeNs deadline = kNever;
  TimeNs ended_at = kNever;
  Status status;      // once it has ended
  uint64_t hash = 0;  // of the result; 0: there is none to compare
  std::string text;   // as errors show it; only where a rank calls otherwise
};

// One rank of a group.
struct RankRecord {
  int process = 0;
  std::vector<CallRecord> calls;
  TimeNs ended_at = kNever;  // the group, by word of the control plane,
  Status end;                // so
  int ends = 0;              // how often it was told
  TimeNs closed_at = kNever;
  Status unheard;                    // of its close
  std::vector<TimeNs> knew_gone_at;  // by rank: that it is dead, or has left
  std::vector<TimeNs> told_dead_at;  // by rank: that it is dead
  bool over = true;                  // its node had nothing left to do at the end
};

struct FaultRecord {
  Fault fault;
  TimeNs happened_at = kNever;  // kNever: it did not come to it
};

struct Warning {
  TimeNs at = 0;
  std::string text;
};

struct GroupRecord {
  const GroupScenario* scenario = nullptr;
  int number = 0;
  std::vector<RankRecord> ranks;
  TimeNs judged_until = 0;  // until when the group ran, before all were told to close
};

}  // namespace ciuic::sim
