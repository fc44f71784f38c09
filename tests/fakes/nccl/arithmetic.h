// SPDX-License-Identifier: Apache-2.0
// arithmetic.h: NCCL's reductions, element by element, in the order of the ranks.
//
// What is told of NCCL holds here: integers wrap around; the average of integers is the sum divided
// toward zero; that of floats is a sum of inputs that were multiplied before, by a number of their
// own type; the least of a NaN and a number is the number. Floats under 32 bits are added in
// float32.
#pragma once

#include <cstddef>
#include <vector>

namespace ciuic::fake_nccl {

inline constexpr int kTypes = 12;
inline constexpr int kFirstFloat8 = 10;

enum Op : int { kSum = 0, kProd = 1, kMax = 2, kMin = 3, kAvg = 4, kBuiltInOps = 5 };

struct Reduction {
  int op = kSum;
  bool is_scaled = false;    // a pre-multiplied sum
  std::byte scalar[8] = {};  // of the type
};

size_t size_of(int type);

// Sets `count` elements of `output` to those of all inputs, one by rank.
void reduce(int type, const Reduction& reduction, const std::vector<const std::byte*>& inputs,
            size_t count, std::byte* output);

}  // namespace ciuic::fake_nccl
