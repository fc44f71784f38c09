// SPDX-License-Identifier: Apache-2.0
// values.h: what simulated ranks contribute, and what must come out, worked out apart from the
// library's own kernels and plans.
//
// Contributions are chosen so that every order of reduction gives the same exact result: small
// whole numbers as floats, any bits as integers, which wrap. Only averages over a number of ranks
// that is no power of two are rounded; they are compared with a tolerance.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "ciuic/dtype.h"

namespace ciuic::sim {

struct Values {
  DataType dtype = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  int ranks = 1;
  uint64_t seed = 0;  // of this operation

  // The logical number that a rank contributes at an index.
  int64_t contribution(int rank, int64_t index) const;

  // Elements [0, count) of a rank's contribution, as bytes of the dtype.
  void fill(int rank, int64_t count, std::byte* at) const;

  // Empty where `result` is the reduction of all ranks' contributions from element `first` on, else
  // what is wrong with it.
  std::string check_reduced(const std::byte* result, int64_t count, int64_t first = 0) const;

  // Empty where `result` is what `rank` contributed from element `first` on.
  std::string check_copied(int rank, const std::byte* result, int64_t count,
                           int64_t first = 0) const;
};

}  // namespace ciuic::sim
