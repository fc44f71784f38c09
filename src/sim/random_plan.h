// SPDX-License-Identifier: Apache-2.0
// random_plan.h: plans that no algorithm would make, to try the engine on every kind of step, lane
// and dependency. Their result is known because they are drawn as one list of transfers, which the
// reference does one after another.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "plan/plan.h"
#include "sim/random.h"

namespace ciuic::sim {

struct RandomPlan {
  std::vector<std::shared_ptr<const plan::Plan>> plans;  // by rank

  // What happens, in an order in which it may.
  struct Action {
    plan::StepKind kind = plan::StepKind::kCopy;  // kSend is part of the others
    int rank = 0;                                 // whose target is written
    std::vector<int> from;                        // ranks whose source goes there
    plan::BlockRange source;                      // on each of them
    plan::BlockRange own;                         // kReduce, kCopy: read on `rank`
    plan::BlockRange target;
  };
  std::vector<Action> actions;

  // Blocks of each rank's output that have a value at the end.
  std::vector<std::vector<bool>> defined;
};

// The elements are uint8; a kReduce adds them. `blocks` in each space, of kSplit or kEach.
RandomPlan random_plan(Random* random, int ranks, bool in_place);

// All ranks' outputs, given their inputs. In place where inputs[r] is to be the output as well.
std::vector<std::vector<uint8_t>> run_reference(const RandomPlan& plan, int64_t count,
                                                const std::vector<std::vector<uint8_t>>& inputs,
                                                bool in_place);

}  // namespace ciuic::sim
