// SPDX-License-Identifier: Apache-2.0
// half_test.cc: every float16 and bfloat16, and every boundary between two of them, against an
// independent reckoning in float64.

#include "kernels/half.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>

namespace ciuic::kernels {
namespace {

// The shape of a 16-bit format, from which float64 gives each value by definition.
struct Shape {
  int mantissa_bits;
  int exponent_bits;
  uint16_t nan;
  float (*widen)(uint16_t);
  uint16_t (*narrow)(float);

  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  uint16_t infinity() const {
    return static_cast<uint16_t>(((1 << exponent_bits) - 1) << mantissa_bits);
  }
  // Of a finite number, or of what would follow the largest one.
  double value(int magnitude) const {
    const int exponent = magnitude >> mantissa_bits;
    const int mantissa = magnitude & ((1 << mantissa_bits) - 1);
    if (exponent == 0) return std::ldexp(mantissa, 1 - bias() - mantissa_bits);
    return std::ldexp(mantissa + (1 << mantissa_bits), exponent - bias() - mantissa_bits);
  }
};

const Shape kHalf = {10, 5, 0x7E00, half_to_float, float_to_half};
const Shape kBFloat16 = {7, 8, 0x7FC0, bfloat16_to_float, float_to_bfloat16};

class HalfFormats : public ::testing::TestWithParam<Shape> {};

TEST_P(HalfFormats, EveryValueWidensExactlyAndComesBack) {
  const Shape& shape = GetParam();
  for (int bits = 0; bits < 0x10000; ++bits) {
    const auto stored = static_cast<uint16_t>(bits);
    const int magnitude = bits & 0x7FFF;
    const float wide = shape.widen(stored);
    if (magnitude > shape.infinity()) {
      ASSERT_TRUE(std::isnan(wide)) << bits;
      ASSERT_EQ(shape.narrow(wide), shape.nan) << bits;
      continue;
    }
    ASSERT_EQ(std::signbit(wide), bits >= 0x8000) << bits;
    if (magnitude == shape.infinity()) {
      ASSERT_TRUE(std::isinf(wide)) << bits;
    } else {
      ASSERT_EQ(std::fabs(static_cast<double>(wide)), shape.value(magnitude)) << bits;
    }
    ASSERT_EQ(shape.narrow(wide), stored) << bits;
  }
}

// Between two neighbours: just under the middle goes down, just above up, the middle to the even.
TEST_P(HalfFormats, RoundsToNearestEvenBetweenAllNeighbours) {
  const Shape& shape = GetParam();
  for (int magnitude = 0; magnitude < shape.infinity(); ++magnitude) {
    const double low = shape.value(magnitude);
    const double high = shape.value(magnitude + 1);
    const auto middle = static_cast<float>((low + high) / 2);
    ASSERT_EQ(static_cast<double>(middle), (low + high) / 2);  // float32 holds the middle
    const float under = std::nextafter(middle, 0.0F);
    const float over = std::nextafter(middle, std::numeric_limits<float>::infinity());
    const int even = magnitude % 2 == 0 ? magnitude : magnitude + 1;
    for (const int sign : {0, 0x8000}) {
      const float factor = sign == 0 ? 1.0F : -1.0F;
      ASSERT_EQ(shape.narrow(factor * under), sign | magnitude) << magnitude;
      ASSERT_EQ(shape.narrow(factor * middle), sign | even) << magnitude;
      ASSERT_EQ(shape.narrow(factor * over), sign | (magnitude + 1)) << magnitude;
    }
  }
}

TEST_P(HalfFormats, ExtremesAndNans) {
  const Shape& shape = GetParam();
  EXPECT_EQ(shape.narrow(std::numeric_limits<float>::max()), shape.infinity());
  EXPECT_EQ(shape.narrow(-std::numeric_limits<float>::infinity()), 0x8000 | shape.infinity());
  EXPECT_EQ(shape.narrow(-0.0F), 0x8000);
  EXPECT_EQ(shape.narrow(std::numeric_limits<float>::denorm_min()), 0);
  for (const uint32_t bits : {0x7F800001U, 0x7FC00000U, 0x7FFFFFFFU, 0xFF800001U, 0xFFFFFFFFU}) {
    EXPECT_EQ(shape.narrow(std::bit_cast<float>(bits)), shape.nan) << bits;
  }
}

// float32 numbers of all magnitudes lie no further from their image than from its neighbours.
TEST_P(HalfFormats, NoNeighbourIsNearer) {
  const Shape& shape = GetParam();
  std::mt19937 random(1);
  for (int i = 0; i < 200'000; ++i) {
    const auto value = std::bit_cast<float>(static_cast<uint32_t>(random() & 0x7FFFFFFF));
    if (std::isnan(value)) continue;
    const int image = shape.narrow(value);
    if (image == shape.infinity()) {
      const double last = shape.value(image - 1);
      ASSERT_GE(static_cast<double>(value), (last + shape.value(image)) / 2) << value;
      continue;
    }
    const double error = std::fabs(shape.value(image) - value);
    ASSERT_LE(error, std::fabs(shape.value(image + 1) - value)) << value;
    if (image == 0) continue;
    ASSERT_LE(error, std::fabs(shape.value(image - 1) - value)) << value;
  }
}

INSTANTIATE_TEST_SUITE_P(All, HalfFormats, ::testing::Values(kHalf, kBFloat16),
                         [](const auto& shape) {
                           return shape.param.mantissa_bits == 10 ? "float16" : "bfloat16";
                         });

}  // namespace
}  // namespace ciuic::kernels
