// SPDX-License-Identifier: Apache-2.0
// cost.h: how long an operation may take, by a latency and a bandwidth for each kind of work.
//
// A model, not a measurement: one processor a rank, which copies, adds up, writes to shared memory
// and handles messages; one network port a host, which sends and receives at once; latencies
// between. It follows the plans' own order, chunk by chunk, so that pipelining counts.
#pragma once

#include <cstdint>
#include <vector>

#include "ciuic/dtype.h"
#include "plan/layout.h"
#include "plan/plan.h"
#include "tuner/tuning_table.h"

namespace ciuic::tuner {

struct Load {
  int64_t count = 0;  // elements, the unit of the plans' partitions
  DataType dtype = DataType::kUInt8;
  size_t chunk_bytes = 0;
};

// Microseconds until the last rank is done, when all begin at once. `plans` are those of all ranks,
// and proved. Messages of many chunks are taken as fewer larger ones, 16 at least.
double predicted_us(const std::vector<plan::Plan>& plans, const plan::Layout& layout,
                    const Load& load, const TuningTable& table);

// Bytes of payload that a rank sends, each message counted once a peer.
int64_t sent_bytes(const plan::Plan& plan, const Load& load);

// Bytes of a range of blocks.
int64_t bytes_of(const plan::Plan& plan, plan::BlockRange range, const Load& load);

}  // namespace ciuic::tuner
