// SPDX-License-Identifier: Apache-2.0
// members.h: some ranks of a group that all-reduce among themselves, by doubling, by halving and
// doubling, or round a ring.
//
// The whole group in the flat algorithms; in those of two levels one rank of each host, which
// enters with the sum of its host.
#pragma once

#include <vector>

#include "plan/plan.h"

namespace ciuic::plan {

struct Members {
  std::vector<int> ranks;  // in the order in which their contributions are folded
  std::vector<bool> raw;   // whether a member enters with its own unreduced input
  int place = 0;           // of this rank in `ranks`

  int size() const { return static_cast<int>(ranks.size()); }
};

// The ranks of a flat algorithm, each with its input.
Members whole_group(int size, int rank);

// Recursive doubling over output(block), with scratch(block) of the same size as second place.
// `value` is input(block), or first_place() with the host's sum in it.
void add_recursive_doubling(Plan* plan, const Members& members, int block, BlockRange value);

// Where a sum that enters add_recursive_doubling() is best put.
BlockRange first_place(const Members& members, int block);

// Reduce-scatter, then all-gather, round the ring of members over output(first_block), ... one
// block a member. It starts from output where `reduced` says that a host's sum stands there, else
// from input.
void add_ring(Plan* plan, const Members& members, int first_block, bool reduced);

// The same by recursive halving and doubling, over halving_blocks(members.size()) blocks: the
// largest power of two that is not over it.
int halving_blocks(int size);
void add_halving(Plan* plan, const Members& members, int first_block, bool reduced);

}  // namespace ciuic::plan
