// SPDX-License-Identifier: Apache-2.0
// float8.h: float8_e4m3fn and float8_e5m2 to float32 and back, one number at a time, in integer
// arithmetic.
//
// To float32 is exact. Back rounds to nearest even. What is too large becomes infinity in e5m2, and
// NaN in e4m3fn, which has no infinity; a NaN becomes the canonical one. ml_dtypes converts alike,
// but for the sign of a NaN.
//
// Source: Micikevicius et al., "FP8 formats for deep learning", arXiv:2209.05433 (2022).
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

namespace ciuic::kernels {

struct E4M3FN {
  static constexpr int kMantissaBits = 3;
  static constexpr int kBias = 7;
  static constexpr uint8_t kNan = 0x7F;       // the canonical one
  static constexpr uint8_t kFirstNan = 0x7F;  // and all magnitudes above
  static constexpr uint8_t kOverflow = 0x7F;  // the code that follows the largest number
};

struct E5M2 {
  static constexpr int kMantissaBits = 2;
  static constexpr int kBias = 15;
  static constexpr uint8_t kNan = 0x7E;
  static constexpr uint8_t kFirstNan = 0x7D;
  static constexpr uint8_t kOverflow = 0x7C;
};

template <class Shape>
float float8_to_float(uint8_t stored) {
  const uint32_t sign = uint32_t{stored} << 24 & 0x80000000;
  const uint32_t magnitude = stored & 0x7F;
  constexpr int kShift = 23 - Shape::kMantissaBits;
  if (magnitude >= Shape::kFirstNan) return std::bit_cast<float>(sign | 0x7FC00000);
  if (magnitude >= Shape::kOverflow) return std::bit_cast<float>(sign | 0x7F800000);
  if (magnitude == 0) return std::bit_cast<float>(sign);
  if (magnitude >> Shape::kMantissaBits != 0) {
    return std::bit_cast<float>(sign + (magnitude << kShift) + ((127 - Shape::kBias) << 23));
  }
  // A subnormal, which float32 holds as a normal number.
  const int shift = std::countl_zero(magnitude) - 31 + Shape::kMantissaBits;
  const auto exponent = static_cast<uint32_t>(127 - Shape::kBias + 1 - shift);
  const uint32_t mantissa = magnitude << (shift + kShift) & 0x7FFFFF;
  return std::bit_cast<float>(sign | exponent << 23 | mantissa);
}

template <class Shape>
uint8_t float_to_float8(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint8_t>(bits >> 24 & 0x80);
  const uint32_t magnitude = bits & 0x7FFFFFFF;
  if (magnitude > 0x7F800000) return Shape::kNan;

  // The bits that stay, then those that go: more where the result is subnormal, at most all.
  constexpr int kLeastNormal = 127 - Shape::kBias + 1;
  const int exponent = static_cast<int>(magnitude >> 23);
  const bool subnormal = exponent < kLeastNormal;
  const int drop = 23 - Shape::kMantissaBits + (subnormal ? kLeastNormal - exponent : 0);
  if (drop > 24) return sign;  // under half of the least subnormal
  const uint32_t whole =
      subnormal ? (magnitude & 0x7FFFFF) | 0x800000 : magnitude - ((kLeastNormal - 1) << 23);
  const uint32_t kept = whole >> drop;
  const uint32_t rest = whole & ((1U << drop) - 1);
  const uint32_t halfway = 1U << (drop - 1);
  const uint32_t up = rest > halfway || (rest == halfway && (kept & 1) != 0) ? 1 : 0;
  const uint32_t code = std::min<uint32_t>(kept + up, Shape::kOverflow);
  if (code >= Shape::kFirstNan) return Shape::kNan;
  return static_cast<uint8_t>(sign | code);
}

}  // namespace ciuic::kernels
