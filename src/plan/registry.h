// SPDX-License-Identifier: Apache-2.0
// registry.h: the operations, the algorithms, and which go together. Every plan is made here.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "plan/layout.h"
#include "plan/plan.h"

namespace ciuic::plan {

// The values stand in files; they are never renumbered.
enum class Operation : uint8_t {
  kAllReduce = 0,
  kReduce = 1,
  kBroadcast = 2,
  kAllGather = 3,
  kBarrier = 4,
};
inline constexpr int kOperations = 5;

enum class Algorithm : uint8_t {
  kOneShot = 0,            // all_reduce: everyone reads everything
  kTwoShot = 1,            // all_reduce, reduce: everyone adds up a part
  kRecursiveDoubling = 2,  // all_reduce
  kRing = 3,               // all_reduce, all_gather
  kTwoLevel = 4,           // all: inside hosts, then one rank a host across them
  kTwoLevelSharded = 5,    // all_reduce: several ranks a host across, each its shard, by doubling
  kTwoLevelRing = 6,       // all_reduce: the same, by rings
  kDirect = 7,             // reduce, broadcast, all_gather, barrier: no relay
  kBinomial = 8,           // reduce, broadcast
  kDissemination = 9,      // barrier
};
inline constexpr int kAlgorithms = 10;

const char* name_of(Operation operation);  // "all_reduce", ...
const char* name_of(Algorithm algorithm);  // "recursive_doubling", ...
std::optional<Operation> operation_named(std::string_view name);
std::optional<Algorithm> algorithm_named(std::string_view name);

bool has_root(Operation operation);
bool reduces(Operation operation);  // so that a ReduceOp means something

// What can carry the operation out, on any layout.
std::vector<Algorithm> algorithms_for(Operation operation);

// Whether the algorithm is one for the operation and makes sense on the layout: two levels need
// more than one host, and one with more than one rank.
bool fits(Operation operation, Algorithm algorithm, const Layout& layout);

// The plan of one rank. `algorithm` is one of algorithms_for(operation); it need not fit. `root` is
// looked at only where the operation has one.
Plan make(Operation operation, Algorithm algorithm, const Layout& layout, int rank, int root);

}  // namespace ciuic::plan
