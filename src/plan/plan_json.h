// SPDX-License-Identifier: Apache-2.0
// plan_json.h: plans as JSON, so that they can be read, kept and written by hand.
//
// A file holds one operation: {"operation": "all_reduce", "layout": "2", "root": 0, "plans":
// [...]}, a plan for each rank:
//
//   {"algorithm": "mine", "input_offset": 0,
//    "partitions": {"input": {"blocks": 2, "unit": "split"}, "output": ..., "scratch": ...},
//    "steps": [{"kind": "send", "peers": [1], "lane": 0, "source": ["input", 0, 1]},
//              {"kind": "reduce", "peers": [1], "own_place": 0, "received_raw": true, "final":
//              true,
//               "source": ["input", 1, 1], "target": ["output", 1, 1]}]}
//
// A range is [space, first block, how many]. A step may leave out lane, own_place, received_raw and
// final where they are 0 or false, and has only those of source and target that its kind has. A
// plan may leave out "allows_in_place" where it is true, a partition "first" where it is 0, and
// "owners".
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ciuic/status.h"
#include "plan/layout.h"
#include "plan/plan.h"
#include "plan/registry.h"

namespace ciuic::plan {

struct PlanFile {
  Operation operation = Operation::kAllReduce;
  Layout layout = Layout::one_host(1);
  int root = 0;
  std::vector<Plan> plans;  // by rank, finished
};

std::string to_json(const Plan& plan);
std::string to_json(const PlanFile& file);

// From outside: every field is checked, nothing that is unknown is passed over. kInvalidArgument
// names the place. What is well formed still has to be proved (prover.h) before it runs.
Result<Plan> plan_from_json(std::string_view text, int size, int rank);
Result<PlanFile> plan_file_from_json(std::string_view text);

}  // namespace ciuic::plan
