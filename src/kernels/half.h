// SPDX-License-Identifier: Apache-2.0
// half.h: float16 and bfloat16 to float32 and back, one number at a time, in integer arithmetic.
//
// To float32 is exact. Back rounds to nearest even; what is too large becomes infinity, a NaN the
// canonical one. The results do not depend on the processor's rounding or flush-to-zero modes.
#pragma once

#include <bit>
#include <cstdint>

namespace ciuic::kernels {

inline float bfloat16_to_float(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

inline uint16_t float_to_bfloat16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7FFFFFFF) > 0x7F800000) return 0x7FC0;
  return static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

inline float half_to_float(uint16_t bits) {
  const uint32_t sign = uint32_t{bits} << 16 & 0x80000000;
  uint32_t exponent = bits >> 10 & 0x1F;
  uint32_t mantissa = bits & 0x3FF;
  if (exponent == 0x1F) {
    exponent = 0xFF;
  } else if (exponent != 0) {
    exponent += 127 - 15;
  } else if (mantissa != 0) {  // a subnormal, which float32 holds as a normal number
    const int shift = std::countl_zero(mantissa) - 21;
    mantissa = mantissa << shift & 0x3FF;
    exponent = static_cast<uint32_t>(127 - 15 + 1 - shift);
  }
  return std::bit_cast<float>(sign | exponent << 23 | mantissa << 13);
}

inline uint16_t float_to_half(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
  const uint32_t magnitude = bits & 0x7FFFFFFF;
  if (magnitude > 0x7F800000) return 0x7E00;
  if (magnitude >= 0x47800000) return sign | 0x7C00;  // 2^16 and up
  if (magnitude < 0x33000000) return sign;            // under 2^-25, half of the least subnormal

  // The bits that stay, then those that go: 13, and more where the result is subnormal.
  const int exponent = static_cast<int>(magnitude >> 23);
  const bool subnormal = exponent < 127 - 14;
  const int drop = subnormal ? 13 + (127 - 14 - exponent) : 13;
  const uint32_t whole =
      subnormal ? (magnitude & 0x7FFFFF) | 0x800000 : magnitude - ((127 - 15) << 23);
  const uint32_t kept = whole >> drop;
  const uint32_t rest = whole & ((1U << drop) - 1);
  const uint32_t halfway = 1U << (drop - 1);
  const uint32_t up = rest > halfway || (rest == halfway && (kept & 1) != 0) ? 1 : 0;
  return static_cast<uint16_t>(sign |
                               (kept + up));  // a carry into the exponent is what it should be
}

}  // namespace ciuic::kernels
