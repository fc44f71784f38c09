// SPDX-License-Identifier: Apache-2.0
// two_level_all_reduce.h: all-reduce inside hosts, then across them.
#pragma once

#include "plan/plan.h"

namespace ciuic::plan {

// Shards: how many ranks of each host work across hosts, each on its part of the buffer; at most
// layout.smallest_host(). One shard and doubling for small buffers.
enum class Across : uint8_t { kDoubling, kRing };
Plan two_level_all_reduce(const Layout& layout, int rank, int shards, Across across);

}  // namespace ciuic::plan
