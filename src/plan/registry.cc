// SPDX-License-Identifier: Apache-2.0
// registry.cc: the table of operations and algorithms.

#include "plan/registry.h"

#include <algorithm>
#include <array>

#include "base/assert.h"
#include "plan/binomial_broadcast.h"
#include "plan/binomial_reduce.h"
#include "plan/direct_all_gather.h"
#include "plan/direct_barrier.h"
#include "plan/direct_broadcast.h"
#include "plan/direct_reduce.h"
#include "plan/dissemination_barrier.h"
#include "plan/one_shot_all_reduce.h"
#include "plan/recursive_doubling_all_reduce.h"
#include "plan/ring_all_gather.h"
#include "plan/ring_all_reduce.h"
#include "plan/two_level_all_gather.h"
#include "plan/two_level_all_reduce.h"
#include "plan/two_level_barrier.h"
#include "plan/two_level_broadcast.h"
#include "plan/two_level_reduce.h"
#include "plan/two_shot_all_reduce.h"
#include "plan/two_shot_reduce.h"

namespace ciuic::plan {

namespace {

using Make = Plan (*)(const Layout& layout, int rank, int root);

struct Entry {
  Operation operation;
  Algorithm algorithm;
  Make make;
};

// An algorithm without a root, in the table's form.
template <Plan (*kMake)(const Layout&, int)>
Plan rootless(const Layout& layout, int rank, int /*root*/) {
  return kMake(layout, rank);
}

Plan two_level(const Layout& layout, int rank, int /*root*/) {
  return two_level_all_reduce(layout, rank, /*shards=*/1, Across::kDoubling);
}

Plan two_level_sharded(const Layout& layout, int rank, int /*root*/) {
  return two_level_all_reduce(layout, rank, layout.smallest_host(), Across::kDoubling);
}

Plan two_level_ring(const Layout& layout, int rank, int /*root*/) {
  return two_level_all_reduce(layout, rank, layout.smallest_host(), Across::kRing);
}

constexpr Entry kTable[] = {
    {Operation::kAllReduce, Algorithm::kOneShot, rootless<one_shot_all_reduce>},
    {Operation::kAllReduce, Algorithm::kTwoShot, rootless<two_shot_all_reduce>},
    {Operation::kAllReduce, Algorithm::kRecursiveDoubling, rootless<recursive_doubling_all_reduce>},
    {Operation::kAllReduce, Algorithm::kRing, rootless<ring_all_reduce>},
    {Operation::kAllReduce, Algorithm::kTwoLevel, two_level},
    {Operation::kAllReduce, Algorithm::kTwoLevelSharded, two_level_sharded},
    {Operation::kAllReduce, Algorithm::kTwoLevelRing, two_level_ring},
    {Operation::kReduce, Algorithm::kDirect, direct_reduce},
    {Operation::kReduce, Algorithm::kTwoShot, two_shot_reduce},
    {Operation::kReduce, Algorithm::kBinomial, binomial_reduce},
    {Operation::kReduce, Algorithm::kTwoLevel, two_level_reduce},
    {Operation::kBroadcast, Algorithm::kDirect, direct_broadcast},
    {Operation::kBroadcast, Algorithm::kBinomial, binomial_broadcast},
    {Operation::kBroadcast, Algorithm::kTwoLevel, two_level_broadcast},
    {Operation::kAllGather, Algorithm::kDirect, rootless<direct_all_gather>},
    {Operation::kAllGather, Algorithm::kRing, rootless<ring_all_gather>},
    {Operation::kAllGather, Algorithm::kTwoLevel, rootless<two_level_all_gather>},
    {Operation::kBarrier, Algorithm::kDirect, rootless<direct_barrier>},
    {Operation::kBarrier, Algorithm::kDissemination, rootless<dissemination_barrier>},
    {Operation::kBarrier, Algorithm::kTwoLevel, rootless<two_level_barrier>},
};

constexpr std::array<const char*, kOperations> kOperationNames = {
    "all_reduce", "reduce", "broadcast", "all_gather", "barrier",
};

constexpr std::array<const char*, kAlgorithms> kAlgorithmNames = {
    "one_shot",  "two_shot",          "recursive_doubling", "ring",
    "two_level", "two_level_sharded", "two_level_ring",     "direct",
    "binomial",  "dissemination",
};

template <typename Enum, size_t kCount>
std::optional<Enum> named(const std::array<const char*, kCount>& names, std::string_view name) {
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) return std::nullopt;
  return static_cast<Enum>(found - names.begin());
}

const Entry* find(Operation operation, Algorithm algorithm) {
  for (const Entry& entry : kTable) {
    if (entry.operation == operation && entry.algorithm == algorithm) return &entry;
  }
  return nullptr;
}

}  // namespace

const char* name_of(Operation operation) { return kOperationNames[static_cast<int>(operation)]; }
const char* name_of(Algorithm algorithm) { return kAlgorithmNames[static_cast<int>(algorithm)]; }

std::optional<Operation> operation_named(std::string_view name) {
  return named<Operation>(kOperationNames, name);
}

std::optional<Algorithm> algorithm_named(std::string_view name) {
  return named<Algorithm>(kAlgorithmNames, name);
}

bool has_root(Operation operation) {
  return operation == Operation::kReduce || operation == Operation::kBroadcast;
}

bool reduces(Operation operation) {
  return operation == Operation::kAllReduce || operation == Operation::kReduce;
}

std::vector<Algorithm> algorithms_for(Operation operation) {
  std::vector<Algorithm> algorithms;
  for (const Entry& entry : kTable) {
    if (entry.operation == operation) algorithms.push_back(entry.algorithm);
  }
  return algorithms;
}

bool fits(Operation operation, Algorithm algorithm, const Layout& layout) {
  if (find(operation, algorithm) == nullptr) return false;
  switch (algorithm) {
    case Algorithm::kTwoLevel: return layout.hosts() > 1 && layout.hosts() < layout.size();
    case Algorithm::kTwoLevelSharded: return layout.hosts() > 1 && layout.smallest_host() > 1;
    case Algorithm::kTwoLevelRing: return layout.hosts() > 1 && layout.hosts() < layout.size();
    default: return true;
  }
}

Plan make(Operation operation, Algorithm algorithm, const Layout& layout, int rank, int root) {
  const Entry* entry = find(operation, algorithm);
  CIUIC_ASSERT(entry != nullptr);
  CIUIC_ASSERT(0 <= rank && rank < layout.size());
  CIUIC_ASSERT(!has_root(operation) || (0 <= root && root < layout.size()));
  Plan plan = entry->make(layout, rank, root);
  plan.algorithm = name_of(algorithm);
  return plan;
}

}  // namespace ciuic::plan
