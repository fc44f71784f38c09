// SPDX-License-Identifier: Apache-2.0
// chooser.h: the plan that a call gets, remembered from earlier calls of its kind.
//
// The choice itself is the tuner's, and alike on all ranks. One thread at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ciuic/status.h"
#include "plan/layout.h"
#include "plan/plan.h"
#include "plan/plan_json.h"
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
  const plan::Layout& layout() const { return layout_; }

  Chosen choose(const tuner::Call& call);

  // The same by an algorithm of the caller's: one of the library's that fits, or one that was
  // added. kInvalidArgument lists those that there are.
  Result<Chosen> choose(const tuner::Call& call, const std::string& algorithm);

  // Takes a caller's plans in, once proved; they replace older ones of the same name.
  // kInvalidArgument: why not.
  Status add(const plan::PlanFile& file);

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

  struct Added {
    plan::Operation operation{};
    std::string name;
    int root = 0;
    uint32_t hash = 0;  // over all ranks' plans
    std::shared_ptr<const plan::Plan> plan;
  };

  bool can_do(const tuner::Call& call, plan::Algorithm algorithm) const;
  bool can_do(const tuner::Call& call, const Added& added) const;
  Status no_algorithm(const tuner::Call& call, const std::string& algorithm) const;
  uint32_t fingerprint(const tuner::Call& call) const;
  std::shared_ptr<const plan::Plan> plan_for(plan::Operation operation, plan::Algorithm algorithm,
                                             int root);

  plan::Layout layout_;
  int rank_;
  tuner::TuningTable table_;
  uint32_t table_hash_;
  std::array<Remembered, 64> calls_;  // by hash
  std::vector<Made> plans_;           // bounded; the oldest makes room
  std::vector<Added> added_;
};

}  // namespace ciuic::collective
