// SPDX-License-Identifier: Apache-2.0
// group_run.h: one group of a run: its connections, its members, and what is recorded of them.
#pragma once

#include <memory>
#include <vector>

#include "sim/control_star.h"
#include "sim/process.h"
#include "sim/record.h"
#include "sim/sim_network.h"

namespace ciuic::sim {

struct GroupRun {
  uint32_t id = 0;
  uint32_t epoch = 0;
  std::unique_ptr<GroupScenario> own_scenario;  // of survivors
  GroupRecord record;
  std::unique_ptr<ControlStar> star;  // null: no control plane
  std::vector<Member*> members;       // by rank
  std::vector<Caller*> callers;
  std::vector<bool> lines_ended;  // by rank: it has left, and closed them

  int rank_of(int process) const;
  bool is_target(const Scenario& scenario, int rank) const;
};

struct GroupMaker {
  const Scenario* scenario = nullptr;
  SimNetwork* network = nullptr;
  Judge* judge = nullptr;
  std::vector<std::unique_ptr<Process>>* processes = nullptr;
  uint64_t seed = 0;

  // Connects the group's processes, and gives each a member and a caller. `run` has scenario,
  // number, id and epoch.
  void make(GroupRun* run) const;
};

}  // namespace ciuic::sim
