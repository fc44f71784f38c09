// SPDX-License-Identifier: Apache-2.0
// native_loop.h: the inner loop of `ciuic bench`, and the numbers by which it checks results first.
//
// The pattern is made of small whole numbers, so that every dtype holds operands and result exactly
// whatever the order of the additions: one oracle for all implementations.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "ciuic/buffer.h"
#include "ciuic/communicator.h"
#include "ciuic/dtype.h"
#include "ciuic/status.h"

namespace ciuic::bench {

// Calls all_reduce in place, `warm_up` times and then once for each of `nanoseconds`, which gets
// the time from the end of the call before to the end of this one: the clock is read once a call.
// `algorithm`: by name; "": the library's choice.
Status time_all_reduce(Communicator& communicator, MutableBuffer buffer, ReduceOp op,
                       const std::string& algorithm, int warm_up, std::span<int64_t> nanoseconds);

// What rank `rank` of `size` puts in.
void fill_pattern(MutableBuffer buffer, ReduceOp op, int rank, int size);

// The first element that is not what `size` ranks' patterns give, or -1. Exact, save for 8-bit
// floats, and for AVG of floats over a number of ranks that is no power of two: there 1/size is
// rounded first.
int64_t first_difference(ConstBuffer buffer, ReduceOp op, int size);

}  // namespace ciuic::bench
