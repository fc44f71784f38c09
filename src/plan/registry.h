// SPDX-License-Identifier: Apache-2.0
// registry.h: the operations, the algorithms, and which go together. Every plan is made here.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "ciuic/call.h"
#include "plan/layout.h"
#include "plan/plan.h"

namespace ciuic::plan {

using ciuic::name_of;
using ciuic::Operation;
inline constexpr int kOperations = 9;  // those with plans: all before kSend

// The values stand in files; they are never renumbered.
enum class Algorithm : uint8_t {
  kOneShot = 0,            // all_reduce: everyone reads everything
  kTwoShot = 1,            // all_reduce, reduce: everyone adds up a part
  kRecursiveDoubling = 2,  // all_reduce, all_gather
  kRing = 3,               // all_reduce, all_gather, reduce_scatter
  kTwoLevel = 4,           // all: inside hosts, then one rank a host across them
  kTwoLevelSharded = 5,    // all_reduce: several ranks a host across, each its shard, by doubling
  kTwoLevelRing = 6,       // all_reduce: the same, by rings
  kDirect = 7,             // all but all_reduce: no relay
  kBinomial = 8,           // reduce, broadcast, gather, scatter
  kDissemination = 9,      // barrier
  kRecursiveHalving = 10,  // all_reduce, reduce_scatter
  kBruck = 11,             // all_gather, all_to_all
  kKnomial = 12,           // broadcast: a tree of hosts with radix 4
  kChain = 13,             // broadcast, reduce: along a chain of hosts
  kScatterAllGather = 14,  // broadcast
};
inline constexpr int kAlgorithms = 15;

const char* name_of(Algorithm algorithm);  // "recursive_doubling", ...

// "all_gather_v", ...; null where the operation has no uneven form.
const char* uneven_name_of(Operation operation);
std::optional<Operation> operation_named(std::string_view name);
std::optional<Algorithm> algorithm_named(std::string_view name);

bool has_root(Operation operation);
bool reduces(Operation operation);  // so that a ReduceOp means something

// Whether input and output may be the same memory, or one a part of the other: all but all_to_all.
bool allows_in_place(Operation operation);

// What one rank gives and gets, in blocks of `count` elements. 0: the rank has no such buffer, or
// what it holds is not looked at. In place, block i of the input is block i + input_offset of the
// output.
struct Shape {
  int input = 1;
  int output = 1;
  int input_offset = 0;
};

//                    input                 output                count is the elements of
//   all_reduce       1                     1                     either
//   reduce           1                     1, the root's         either
//   broadcast        1, the root's         1                     either
//   all_gather       1                     size                  the input
//   barrier          0                     0
//   reduce_scatter   size                  1                     the output
//   all_to_all       size                  size                  what goes to each peer
//   gather           1                     size, the root's      the input
//   scatter          size, the root's      1                     the output
Shape shape_of(Operation operation, int size, int rank, int root);

// What can carry the operation out, on any layout.
std::vector<Algorithm> algorithms_for(Operation operation);

// Whether the plans also do where each rank's blocks have their own size: every rank that handles a
// block must know it. In all_gather and reduce_scatter all ranks know all sizes; in all_to_all,
// gather and scatter a rank knows those that it gives or gets.
bool takes_uneven(Operation operation, Algorithm algorithm);

// Scratch of any rank's plan, in blocks of `count` elements: at least what it needs.
int64_t scratch_blocks(Operation operation, Algorithm algorithm, const Layout& layout);

// Whether an operation may be done as several, each of which takes as many elements of every block:
// no step then takes several blocks of kEach of the input or output together.
bool works_in_parts(Operation operation, Algorithm algorithm);

// Whether the algorithm is one for the operation and makes sense on the layout: two levels need
// more than one host, and one with more than one rank.
bool fits(Operation operation, Algorithm algorithm, const Layout& layout);

// The plan of one rank. `algorithm` is one of algorithms_for(operation); it need not fit. `root` is
// looked at only where the operation has one.
Plan make(Operation operation, Algorithm algorithm, const Layout& layout, int rank, int root);

}  // namespace ciuic::plan
