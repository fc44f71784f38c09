// SPDX-License-Identifier: Apache-2.0
// chooser.h: the plan that a call gets, remembered from earlier calls of its kind.
//
// The choice itself is the tuner's, and alike on all ranks. One thread at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "plan/layout.h"
#include "plan/plan.h"
#include "plan/registry.h"
#include "tuner/tuner.h"

namespace ciuic::collective {

struct Chosen {
  std::shared_ptr<const plan::Plan> plan;
  size_t chunk_bytes = 0;
  uint32_t fingerprint = 0;  // over what the ranks' calls must share; in every header; never 0
};

class Chooser {
 public:
  Chooser(plan::Layout layout, int rank, tuner::TuningTable table);

  int rank() const { return rank_; }
  int size() const { return layout_.size(); }

  Chosen choose(const tuner::Call& call);

 private:
  struct Remembered {
    tuner::Call call;
    Chosen chosen;
  };
  struct Made {
    plan::Operation operation{};
    plan::Algorithm algorithm{};
    int root = 0;
    std::shared_ptr<const plan::Plan> plan;
  };

  uint32_t fingerprint(const tuner::Call& call) const;
  std::shared_ptr<const plan::Plan> plan_for(plan::Operation operation, plan::Algorithm algorithm,
                                             int root);

  plan::Layout layout_;
  int rank_;
  tuner::TuningTable table_;
  uint32_t table_hash_;
  std::array<Remembered, 64> calls_;  // by hash
  std::vector<Made> plans_;           // bounded; the oldest makes room
};

}  // namespace ciuic::collective
