// SPDX-License-Identifier: Apache-2.0
// chooser.cc: two bounded caches before the tuner: of calls, and of plans.

#include "collective/chooser.h"

#include <utility>

namespace ciuic::collective {

static constexpr size_t kPlans = 128;

static bool same(const tuner::Call& a, const tuner::Call& b) {
  return a.operation == b.operation && a.dtype == b.dtype && a.op == b.op && a.count == b.count &&
         a.root == b.root && a.uneven == b.uneven;
}

// A multiplicative mix of 64 bits (the finisher of SplitMix64: Steele, Lea and Flood, "Fast
// splittable pseudorandom number generators", OOPSLA 2014).
static uint64_t mix(uint64_t bits) {
  bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9u;
  bits = (bits ^ (bits >> 27)) * 0x94d049bb133111ebu;
  return bits ^ (bits >> 31);
}

static uint64_t hash_of(const tuner::Call& call) {
  const uint64_t kind =
      static_cast<uint64_t>(call.operation) | static_cast<uint64_t>(call.dtype) << 8 |
      static_cast<uint64_t>(call.op) << 16 | static_cast<uint64_t>(call.uneven) << 20 |
      static_cast<uint64_t>(static_cast<uint32_t>(call.root)) << 24;
  return mix(kind ^ mix(static_cast<uint64_t>(call.count)));
}

Chooser::Chooser(plan::Layout layout, int rank, tuner::TuningTable table)
    : layout_(std::move(layout)),
      rank_(rank),
      table_(std::move(table)),
      table_hash_(table_.hash()) {}

uint32_t Chooser::fingerprint(const tuner::Call& call) const {
  const auto bits = static_cast<uint32_t>(hash_of(call)) ^ table_hash_;
  return bits == 0 ? 1 : bits;
}

std::shared_ptr<const plan::Plan> Chooser::plan_for(plan::Operation operation,
                                                    plan::Algorithm algorithm, int root) {
  for (const Made& made : plans_) {
    if (made.operation == operation && made.algorithm == algorithm && made.root == root) {
      return made.plan;
    }
  }
  if (plans_.size() == kPlans) plans_.erase(plans_.begin());
  plans_.push_back(
      {operation, algorithm, root,
       std::make_shared<const plan::Plan>(plan::make(operation, algorithm, layout_, rank_, root))});
  return plans_.back().plan;
}

Chosen Chooser::choose(const tuner::Call& call) {
  Remembered& remembered = calls_[hash_of(call) % calls_.size()];
  if (remembered.chosen.plan == nullptr || !same(remembered.call, call)) {
    const tuner::Choice choice = tuner::choose(call, layout_, table_);
    remembered.call = call;
    remembered.chosen = {plan_for(call.operation, choice.algorithm, call.root), choice.chunk_bytes,
                         fingerprint(call)};
  }
  return remembered.chosen;
}

}  // namespace ciuic::collective
