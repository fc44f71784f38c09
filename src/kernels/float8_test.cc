// SPDX-License-Identifier: Apache-2.0
// float8_test.cc: every 8-bit float, and every boundary between two of them, against an independent
// reckoning in float64.

#include "kernels/float8.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace ciuic::kernels {
namespace {

// A format by its definition, and the code for it.
struct Definition {
  int mantissa_bits;
  int bias;
  int largest;   // the code of the largest number
  int overflow;  // what a larger one becomes
  int nan;
  float (*widen)(uint8_t);
  uint8_t (*narrow)(float);

  bool is_nan(int magnitude) const { return magnitude > largest && magnitude != infinity(); }
  int infinity() const { return overflow == nan ? -1 : overflow; }

  // Of a finite number, or of what would follow the largest one.
  double value(int magnitude) const {
    const int exponent = magnitude >> mantissa_bits;
    const int mantissa = magnitude & ((1 << mantissa_bits) - 1);
    if (exponent == 0) return std::ldexp(mantissa, 1 - bias - mantissa_bits);
    return std::ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
  }
};

const Definition kE4M3FN = {
    3, 7, 0x7E, 0x7F, 0x7F, float8_to_float<E4M3FN>, float_to_float8<E4M3FN>};
const Definition kE5M2 = {2, 15, 0x7B, 0x7C, 0x7E, float8_to_float<E5M2>, float_to_float8<E5M2>};

class Float8Formats : public ::testing::TestWithParam<Definition> {};

TEST_P(Float8Formats, EveryCodeWidensExactlyAndComesBack) {
  const Definition& format = GetParam();
  for (int code = 0; code < 256; ++code) {
    const int magnitude = code & 0x7F;
    const float wide = format.widen(static_cast<uint8_t>(code));
    if (format.is_nan(magnitude)) {
      ASSERT_TRUE(std::isnan(wide)) << code;
      ASSERT_EQ(format.narrow(wide), format.nan) << code;
      continue;
    }
    ASSERT_EQ(std::signbit(wide), code >= 0x80) << code;
    if (magnitude == format.infinity()) {
      ASSERT_TRUE(std::isinf(wide)) << code;
    } else {
      ASSERT_EQ(std::fabs(static_cast<double>(wide)), format.value(magnitude)) << code;
    }
    ASSERT_EQ(format.narrow(wide), code);
  }
}

// Between two neighbours: just under the middle goes down, just above up, the middle to the even.
// What follows the largest number is no number: what would be rounded there overflows.
TEST_P(Float8Formats, RoundsToNearestEvenBetweenAllNeighbours) {
  const Definition& format = GetParam();
  for (int magnitude = 0; magnitude <= format.largest; ++magnitude) {
    const auto middle =
        static_cast<float>((format.value(magnitude) + format.value(magnitude + 1)) / 2);
    const float under = std::nextafter(middle, 0.0F);
    const float over = std::nextafter(middle, std::numeric_limits<float>::infinity());
    const int even = magnitude % 2 == 0 ? magnitude : magnitude + 1;
    for (const int sign : {0, 0x80}) {
      const float factor = sign == 0 ? 1.0F : -1.0F;
      const auto expected = [&](int code) {
        if (code <= format.largest) return sign | code;
        return format.overflow == format.nan ? format.nan : sign | format.overflow;
      };
      ASSERT_EQ(format.narrow(factor * under), expected(magnitude)) << magnitude;
      ASSERT_EQ(format.narrow(factor * middle), expected(even)) << magnitude;
      ASSERT_EQ(format.narrow(factor * over), expected(magnitude + 1)) << magnitude;
    }
  }
}

TEST_P(Float8Formats, ExtremesAndNans) {
  const Definition& format = GetParam();
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(format.narrow(std::numeric_limits<float>::max()), format.overflow);
  EXPECT_EQ(format.narrow(infinity), format.overflow);
  EXPECT_EQ(format.narrow(-infinity), format.infinity() < 0 ? format.nan : 0x80 | format.overflow);
  EXPECT_EQ(format.narrow(-0.0F), 0x80);
  EXPECT_EQ(format.narrow(std::numeric_limits<float>::denorm_min()), 0);
  EXPECT_EQ(format.narrow(-std::numeric_limits<float>::min()), 0x80);
  for (const uint32_t bits : {0x7F800001U, 0x7FC00000U, 0x7FFFFFFFU, 0xFF800001U, 0xFFFFFFFFU}) {
    EXPECT_EQ(format.narrow(std::bit_cast<float>(bits)), format.nan) << bits;
  }
}

INSTANTIATE_TEST_SUITE_P(All, Float8Formats, ::testing::Values(kE4M3FN, kE5M2),
                         [](const auto& format) {
                           return format.param.mantissa_bits == 3 ? "e4m3fn" : "e5m2";
                         });

}  // namespace
}  // namespace ciuic::kernels
