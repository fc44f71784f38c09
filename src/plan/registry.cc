// SPDX-License-Identifier: Apache-2.0
// registry.cc: the table of operations and algorithms.

#include "plan/registry.h"

#include <algorithm>
#include <array>
#include <bit>

#include "base/assert.h"
#include "plan/binomial_broadcast.h"
#include "plan/binomial_gather.h"
#include "plan/binomial_reduce.h"
#include "plan/binomial_scatter.h"
#include "plan/bruck_all_gather.h"
#include "plan/bruck_all_to_all.h"
#include "plan/chain_broadcast.h"
#include "plan/chain_reduce.h"
#include "plan/direct_all_gather.h"
#include "plan/direct_all_to_all.h"
#include "plan/direct_barrier.h"
#include "plan/direct_broadcast.h"
#include "plan/direct_gather.h"
#include "plan/direct_reduce.h"
#include "plan/direct_reduce_scatter.h"
#include "plan/direct_scatter.h"
#include "plan/dissemination_barrier.h"
#include "plan/knomial_broadcast.h"
#include "plan/one_shot_all_reduce.h"
#include "plan/recursive_doubling_all_gather.h"
#include "plan/recursive_doubling_all_reduce.h"
#include "plan/recursive_halving_all_reduce.h"
#include "plan/recursive_halving_reduce_scatter.h"
#include "plan/ring_all_gather.h"
#include "plan/ring_all_reduce.h"
#include "plan/ring_reduce_scatter.h"
#include "plan/scatter_all_gather_broadcast.h"
#include "plan/two_level_all_gather.h"
#include "plan/two_level_all_reduce.h"
#include "plan/two_level_all_to_all.h"
#include "plan/two_level_barrier.h"
#include "plan/two_level_broadcast.h"
#include "plan/two_level_gather.h"
#include "plan/two_level_reduce.h"
#include "plan/two_level_reduce_scatter.h"
#include "plan/two_level_scatter.h"
#include "plan/two_shot_all_reduce.h"
#include "plan/two_shot_reduce.h"

namespace ciuic::plan {

namespace {

using Make = Plan (*)(const Layout& layout, int rank, int root);

enum class Uneven : uint8_t { kNo, kYes };

struct Entry {
  Operation operation;
  Algorithm algorithm;
  Make make;
  Uneven uneven = Uneven::kNo;
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
    {Operation::kAllReduce, Algorithm::kRecursiveHalving, rootless<recursive_halving_all_reduce>},
    {Operation::kAllReduce, Algorithm::kTwoLevel, two_level},
    {Operation::kAllReduce, Algorithm::kTwoLevelSharded, two_level_sharded},
    {Operation::kAllReduce, Algorithm::kTwoLevelRing, two_level_ring},
    {Operation::kReduce, Algorithm::kDirect, direct_reduce},
    {Operation::kReduce, Algorithm::kTwoShot, two_shot_reduce},
    {Operation::kReduce, Algorithm::kBinomial, binomial_reduce},
    {Operation::kReduce, Algorithm::kTwoLevel, two_level_reduce},
    {Operation::kReduce, Algorithm::kChain, chain_reduce},
    {Operation::kBroadcast, Algorithm::kDirect, direct_broadcast},
    {Operation::kBroadcast, Algorithm::kBinomial, binomial_broadcast},
    {Operation::kBroadcast, Algorithm::kTwoLevel, two_level_broadcast},
    {Operation::kBroadcast, Algorithm::kKnomial, knomial_broadcast},
    {Operation::kBroadcast, Algorithm::kChain, chain_broadcast},
    {Operation::kBroadcast, Algorithm::kScatterAllGather, scatter_all_gather_broadcast},
    {Operation::kAllGather, Algorithm::kDirect, rootless<direct_all_gather>, Uneven::kYes},
    {Operation::kAllGather, Algorithm::kRing, rootless<ring_all_gather>, Uneven::kYes},
    {Operation::kAllGather, Algorithm::kBruck, rootless<bruck_all_gather>, Uneven::kYes},
    {Operation::kAllGather, Algorithm::kRecursiveDoubling, rootless<recursive_doubling_all_gather>,
     Uneven::kYes},
    {Operation::kAllGather, Algorithm::kTwoLevel, rootless<two_level_all_gather>, Uneven::kYes},
    {Operation::kBarrier, Algorithm::kDirect, rootless<direct_barrier>},
    {Operation::kBarrier, Algorithm::kDissemination, rootless<dissemination_barrier>},
    {Operation::kBarrier, Algorithm::kTwoLevel, rootless<two_level_barrier>},
    {Operation::kReduceScatter, Algorithm::kDirect, rootless<direct_reduce_scatter>, Uneven::kYes},
    {Operation::kReduceScatter, Algorithm::kRing, rootless<ring_reduce_scatter>, Uneven::kYes},
    {Operation::kReduceScatter, Algorithm::kRecursiveHalving,
     rootless<recursive_halving_reduce_scatter>, Uneven::kYes},
    {Operation::kReduceScatter, Algorithm::kTwoLevel, rootless<two_level_reduce_scatter>,
     Uneven::kYes},
    {Operation::kAllToAll, Algorithm::kDirect, rootless<direct_all_to_all>, Uneven::kYes},
    {Operation::kAllToAll, Algorithm::kBruck, rootless<bruck_all_to_all>},
    {Operation::kAllToAll, Algorithm::kTwoLevel, rootless<two_level_all_to_all>},
    {Operation::kGather, Algorithm::kDirect, direct_gather, Uneven::kYes},
    {Operation::kGather, Algorithm::kBinomial, binomial_gather},
    {Operation::kGather, Algorithm::kTwoLevel, two_level_gather},
    {Operation::kScatter, Algorithm::kDirect, direct_scatter, Uneven::kYes},
    {Operation::kScatter, Algorithm::kBinomial, binomial_scatter},
    {Operation::kScatter, Algorithm::kTwoLevel, two_level_scatter},
};

constexpr std::array<const char*, kOperations> kOperationNames = {
    "all_reduce",     "reduce",     "broadcast", "all_gather", "barrier",
    "reduce_scatter", "all_to_all", "gather",    "scatter",
};

constexpr std::array<const char*, kAlgorithms> kAlgorithmNames = {
    "one_shot",
    "two_shot",
    "recursive_doubling",
    "ring",
    "two_level",
    "two_level_sharded",
    "two_level_ring",
    "direct",
    "binomial",
    "dissemination",
    "recursive_halving",
    "bruck",
    "knomial",
    "chain",
    "scatter_all_gather",
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

const char* name_of(Algorithm algorithm) { return kAlgorithmNames[static_cast<int>(algorithm)]; }

const char* uneven_name_of(Operation operation) {
  switch (operation) {
    case Operation::kAllGather: return "all_gather_v";
    case Operation::kReduceScatter: return "reduce_scatter_v";
    case Operation::kAllToAll: return "all_to_all_v";
    case Operation::kGather: return "gather_v";
    case Operation::kScatter: return "scatter_v";
    default: return nullptr;
  }
}

std::optional<Operation> operation_named(std::string_view name) {
  return named<Operation>(kOperationNames, name);
}

std::optional<Algorithm> algorithm_named(std::string_view name) {
  return named<Algorithm>(kAlgorithmNames, name);
}

bool has_root(Operation operation) {
  return operation == Operation::kReduce || operation == Operation::kBroadcast ||
         operation == Operation::kGather || operation == Operation::kScatter;
}

bool reduces(Operation operation) {
  return operation == Operation::kAllReduce || operation == Operation::kReduce ||
         operation == Operation::kReduceScatter;
}

bool allows_in_place(Operation operation) { return operation != Operation::kAllToAll; }

Shape shape_of(Operation operation, int size, int rank, int root) {
  const bool at_root = rank == root;
  switch (operation) {
    case Operation::kAllReduce: return {1, 1, 0};
    case Operation::kReduce: return {1, at_root ? 1 : 0, 0};
    case Operation::kBroadcast: return {at_root ? 1 : 0, 1, 0};
    case Operation::kAllGather: return {1, size, rank};
    case Operation::kReduceScatter: return {size, 1, -rank};
    case Operation::kAllToAll: return {size, size, 0};
    case Operation::kGather: return {1, at_root ? size : 0, at_root ? root : 0};
    case Operation::kScatter: return {at_root ? size : 0, 1, at_root ? -root : 0};
    default: return {0, 0, 0};
  }
}

std::vector<Algorithm> algorithms_for(Operation operation) {
  std::vector<Algorithm> algorithms;
  for (const Entry& entry : kTable) {
    if (entry.operation == operation) algorithms.push_back(entry.algorithm);
  }
  return algorithms;
}

bool takes_uneven(Operation operation, Algorithm algorithm) {
  const Entry* entry = find(operation, algorithm);
  return entry != nullptr && entry->uneven == Uneven::kYes;
}

int64_t scratch_blocks(Operation operation, Algorithm algorithm, const Layout& layout) {
  const int64_t size = layout.size();
  if (algorithm == Algorithm::kDirect) return 0;
  switch (operation) {
    case Operation::kAllReduce:
      return algorithm == Algorithm::kRing || algorithm == Algorithm::kTwoShot ||
                     algorithm == Algorithm::kTwoLevelRing ||
                     algorithm == Algorithm::kRecursiveHalving
                 ? 0
                 : 1;
    case Operation::kReduce: return 1;
    case Operation::kAllGather: return algorithm == Algorithm::kBruck ? size : 0;
    case Operation::kReduceScatter:
    case Operation::kGather:
    case Operation::kScatter: return size;
    case Operation::kAllToAll: {
      if (algorithm == Algorithm::kBruck) return size * (std::bit_width<uint64_t>(size) + 1);
      const int64_t most = layout.largest_host();
      return 2 * most * (layout.hosts() + most);
    }
    default: return 0;
  }
}

bool works_in_parts(Operation operation, Algorithm algorithm) {
  switch (operation) {
    case Operation::kAllReduce:
    case Operation::kReduce:
    case Operation::kBroadcast: return true;
    case Operation::kAllGather:
    case Operation::kReduceScatter:
      return algorithm == Algorithm::kDirect || algorithm == Algorithm::kRing ||
             algorithm == Algorithm::kTwoLevel;
    case Operation::kAllToAll:
    case Operation::kGather:
    case Operation::kScatter: return algorithm == Algorithm::kDirect;
    default: return false;
  }
}

bool fits(Operation operation, Algorithm algorithm, const Layout& layout) {
  if (find(operation, algorithm) == nullptr) return false;
  switch (algorithm) {
    case Algorithm::kTwoLevel: return layout.hosts() > 1 && layout.hosts() < layout.size();
    case Algorithm::kTwoLevelSharded: return layout.hosts() > 1 && layout.smallest_host() > 1;
    case Algorithm::kTwoLevelRing: return layout.hosts() > 1 && layout.hosts() < layout.size();
    case Algorithm::kKnomial:
    case Algorithm::kChain:
    case Algorithm::kScatterAllGather: return layout.hosts() > 1;
    case Algorithm::kRecursiveDoubling:
      return operation != Operation::kAllGather ||
             std::has_single_bit(static_cast<unsigned>(layout.size()));
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

namespace ciuic {

const char* name_of(Operation operation) {
  if (operation == Operation::kSend) return "send";
  if (operation == Operation::kRecv) return "recv";
  return plan::kOperationNames[static_cast<size_t>(operation)];
}

}  // namespace ciuic
