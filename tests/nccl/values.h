// SPDX-License-Identifier: Apache-2.0
// values.h: elements of every dtype as doubles, and what each operation makes of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ciuic/call.h"

namespace ciuic::nccl_test {

using Bytes = std::vector<std::byte>;

// Complex numbers are two doubles each.
std::vector<double> decode(DataType dtype, const Bytes& bytes);
Bytes encode(DataType dtype, const std::vector<double>& values);
size_t parts_of(DataType dtype);  // doubles an element

// What a rank gives as its element `index`: small whole numbers, so that sums and products are
// exact in every dtype.
std::vector<double> input_of(int rank, int64_t count, DataType dtype);

// The inputs of all ranks, reduced in double precision as ciuic/dtype.h says it.
std::vector<double> reduced(const std::vector<std::vector<double>>& inputs, DataType dtype,
                            ReduceOp op);

// How far a result may be off, relative to 1: not at all where nothing is rounded.
double tolerance(DataType dtype, ReduceOp op);

}  // namespace ciuic::nccl_test
