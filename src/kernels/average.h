// SPDX-License-Identifier: Apache-2.0
// average.h: the factors of AVG, which the SIMD code and the scalar reference share.
//
// float32 and float64 are scaled by a power of two as they are read, which is exact but for
// subnormals, and by the rest at the end: so a sum cannot overflow where the average does not.
#pragma once

#include <bit>
#include <cstdint>

namespace ciuic::kernels {

template <typename T>
struct AverageFactors {
  T raw = 1;    // for an operand that has not been scaled
  T final = 1;  // for a complete sum
};

// k = ceil(log2 ranks).
constexpr int average_exponent(int ranks) {
  return static_cast<int>(std::bit_width(static_cast<uint32_t>(ranks - 1)));
}

template <typename T>
constexpr AverageFactors<T> average_factors(int ranks) {
  const auto power = static_cast<double>(uint64_t{1} << average_exponent(ranks));
  return {static_cast<T>(1.0 / power), static_cast<T>(power / ranks)};
}

// For 16-bit and 8-bit floats, which are added in float32 and have nothing left to scale at the
// end.
constexpr AverageFactors<float> average_factors_of_small(int ranks) {
  return {1.0F / static_cast<float>(ranks), 1.0F};
}

}  // namespace ciuic::kernels
