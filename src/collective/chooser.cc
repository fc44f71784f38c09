// SPDX-License-Identifier: Apache-2.0
// chooser.cc: two bounded caches before the tuner: of calls, and of plans.

#include "collective/chooser.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/hash.h"
#include "plan/prover.h"

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

static uint32_t hash_of(const std::string& text) {
  return static_cast<uint32_t>(mix(fnv1a_64(text)));
}

bool Chooser::can_do(const tuner::Call& call, plan::Algorithm algorithm) const {
  return plan::fits(call.operation, algorithm, layout_) &&
         (!call.uneven || plan::takes_uneven(call.operation, algorithm));
}

bool Chooser::can_do(const tuner::Call& call, const Added& added) const {
  return added.operation == call.operation && !call.uneven &&
         (!plan::has_root(call.operation) || added.root == call.root);
}

// What there is in place of an algorithm that is not.
Status Chooser::no_algorithm(const tuner::Call& call, const std::string& algorithm) const {
  std::vector<std::string_view> names;
  for (const plan::Algorithm known : plan::algorithms_for(call.operation)) {
    if (can_do(call, known)) names.emplace_back(plan::name_of(known));
  }
  for (const Added& added : added_) {
    if (can_do(call, added)) names.emplace_back(added.name);
  }
  return {StatusCode::kInvalidArgument,
          fmt::format("{}: algorithm \"{}\" is not there for this call on layout {}; there are {}",
                      plan::name_of(call.operation), algorithm, layout_.text(),
                      fmt::join(names, ", "))};
}

Result<Chosen> Chooser::choose(const tuner::Call& call, const std::string& algorithm) {
  Chosen chosen;
  uint32_t hash = hash_of(algorithm);
  if (const auto known = plan::algorithm_named(algorithm)) {
    if (!can_do(call, *known)) return no_algorithm(call, algorithm);
    chosen.plan = plan_for(call.operation, *known, call.root);
    chosen.chunk_bytes = tuner::choose_chunk_bytes(call, *known, layout_, table_);
  } else {
    // Where an operation has no root, files for several may stand here: the last one counts.
    const auto added = std::find_if(added_.rbegin(), added_.rend(), [&](const Added& each) {
      return each.name == algorithm && can_do(call, each);
    });
    if (added == added_.rend()) return no_algorithm(call, algorithm);
    chosen.plan = added->plan;
    chosen.chunk_bytes = tuner::choose_chunk_bytes(call, plan::Algorithm::kDirect, layout_, table_);
    hash ^= added->hash;
  }
  chosen.fingerprint = fingerprint(call) ^ hash;
  if (chosen.fingerprint == 0) chosen.fingerprint = 1;
  return chosen;
}

Status Chooser::add(const plan::PlanFile& file) {
  const auto refuse = [](std::string why) {
    return Status(StatusCode::kInvalidArgument, "add_plan: " + std::move(why));
  };
  if (!(file.layout == layout_)) {
    return refuse(fmt::format("the plan is for layout {}, and this group's is {}",
                              file.layout.text(), layout_.text()));
  }
  const std::string& name = file.plans[0].algorithm;
  if (name.empty() || plan::algorithm_named(name)) {
    return refuse(
        fmt::format("\"{}\" cannot be its name: it needs one that the library has not", name));
  }
  std::string all;
  for (const plan::Plan& each : file.plans) {
    if (each.algorithm != name) {
      return refuse(fmt::format("the ranks' plans are of different algorithms, {} and {}", name,
                                each.algorithm));
    }
    all += plan::to_json(each);
  }
  const Status proved = plan::prove({.operation = file.operation, .root = file.root}, file.plans);
  if (!proved.ok()) return refuse(fmt::format("{} is wrong: {}", name, proved.message()));
  std::erase_if(added_, [&](const Added& added) {
    return added.operation == file.operation && added.name == name && added.root == file.root;
  });
  added_.push_back({file.operation, name, file.root, hash_of(all),
                    std::make_shared<const plan::Plan>(file.plans[static_cast<size_t>(rank_)])});
  return {};
}

}  // namespace ciuic::collective
