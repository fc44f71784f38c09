// SPDX-License-Identifier: Apache-2.0
// reference_test.cc: the scalar reference against the definitions of the ops.

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <complex>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "kernels/float8.h"
#include "kernels/half.h"
#include "kernels/reduce.h"

namespace ciuic::kernels {
namespace {

template <typename T>
T reduce_one(DataType dtype, ReduceOp op, const std::vector<T>& values, int ranks = 1,
             bool raw = false) {
  std::vector<Operand> operands;
  for (const T& value : values) {
    operands.push_back({reinterpret_cast<const std::byte*>(&value), raw});
  }
  T result{};
  reduce_scalar({dtype, op, ranks}, operands, true, reinterpret_cast<std::byte*>(&result), 1);
  return result;
}

TEST(Reference, MinimumAndMaximumFollowIeee) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const auto bits = [](ReduceOp op, float a, float b) {
    return std::bit_cast<uint32_t>(reduce_one<float>(DataType::kFloat32, op, {a, b}));
  };
  for (const ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax}) {
    EXPECT_EQ(bits(op, nan, 1.0F), 0x7FC00000U);
    EXPECT_EQ(bits(op, 1.0F, -nan), 0x7FC00000U);
  }
  EXPECT_EQ(bits(ReduceOp::kMin, 0.0F, -0.0F), 0x80000000U);
  EXPECT_EQ(bits(ReduceOp::kMin, -0.0F, 0.0F), 0x80000000U);
  EXPECT_EQ(bits(ReduceOp::kMax, 0.0F, -0.0F), 0U);
  EXPECT_EQ(bits(ReduceOp::kMax, -0.0F, 0.0F), 0U);
  EXPECT_EQ(reduce_one<float>(DataType::kFloat32, ReduceOp::kMin, {3, -2, 5}), -2);
  EXPECT_EQ(reduce_one<float>(DataType::kFloat32, ReduceOp::kMax, {3, -2, 5}), 5);
}

TEST(Reference, SixteenBitFloatsAreRoundedOnce) {
  // 1 + 2^-9 is 1 in bfloat16 at each step, but four of them are 2^-7, which it holds.
  const uint16_t one = float_to_bfloat16(1.0F);
  const uint16_t little = float_to_bfloat16(0x1p-9F);
  const auto sum = reduce_one<uint16_t>(DataType::kBFloat16, ReduceOp::kSum,
                                        {one, little, little, little, little});
  EXPECT_EQ(bfloat16_to_float(sum), 1.0078125F);
  const uint16_t large = float_to_half(40000.0F);
  const auto average =
      reduce_one<uint16_t>(DataType::kFloat16, ReduceOp::kAvg, {large, large}, 2, true);
  EXPECT_EQ(half_to_float(average), 40000.0F);
}

TEST(Reference, AverageOfLargeFloatsIsFinite) {
  const float largest = std::numeric_limits<float>::max();
  EXPECT_EQ(reduce_one<float>(DataType::kFloat32, ReduceOp::kAvg, {largest, largest}, 2, true),
            largest);
  const double most = std::numeric_limits<double>::max();
  EXPECT_NEAR(
      reduce_one<double>(DataType::kFloat64, ReduceOp::kAvg, {most, most, most}, 3, true) / most,
      1.0, 1e-15);
}

TEST(Reference, AverageIsNearThatOfFloat64) {
  std::mt19937 random(3);
  std::uniform_real_distribution<float> uniform(-100.0F, 100.0F);
  for (int ranks = 1; ranks <= 64; ++ranks) {
    std::vector<float> values(static_cast<size_t>(ranks));
    double sum = 0;
    for (float& value : values) sum += value = uniform(random);
    const float got = reduce_one(DataType::kFloat32, ReduceOp::kAvg, values, ranks, true);
    EXPECT_NEAR(got, sum / ranks, 100.0 * ranks * 0x1p-24) << ranks;
  }
}

TEST(Reference, IntegersWrapAndTheirAverageTruncates) {
  constexpr int32_t kMost = std::numeric_limits<int32_t>::max();
  constexpr int64_t kMost64 = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(reduce_one<int32_t>(DataType::kInt32, ReduceOp::kSum, {kMost, 1}), -kMost - 1);
  EXPECT_EQ(reduce_one<int64_t>(DataType::kInt64, ReduceOp::kSum, {kMost64, 2}), -kMost64);
  EXPECT_EQ(reduce_one<uint8_t>(DataType::kUInt8, ReduceOp::kSum, {200, 100}), 44);
  EXPECT_EQ(reduce_one<uint8_t>(DataType::kUInt8, ReduceOp::kProduct, {20, 20}), 144);
  EXPECT_EQ(reduce_one<int32_t>(DataType::kInt32, ReduceOp::kProduct, {65536, 65536}), 0);
  EXPECT_EQ(reduce_one<int32_t>(DataType::kInt32, ReduceOp::kAvg, {-3, -4}, 2, true), -3);
  EXPECT_EQ(reduce_one<int64_t>(DataType::kInt64, ReduceOp::kAvg, {3, 4}, 2, true), 3);
  // The sum wraps before it is divided, as include/ciuic/dtype.h says.
  EXPECT_EQ(reduce_one<uint8_t>(DataType::kUInt8, ReduceOp::kAvg, {200, 200}, 2, true), 72);
  EXPECT_EQ(reduce_one<int32_t>(DataType::kInt32, ReduceOp::kAvg, {kMost, 1}, 2, true),
            -(kMost / 2) - 1);
  EXPECT_EQ(reduce_one<int64_t>(DataType::kInt64, ReduceOp::kMin, {-kMost64, kMost64}), -kMost64);
}

TEST(Reference, OneOperandIsACopyWithCanonicalNan) {
  EXPECT_EQ(reduce_one<float>(DataType::kFloat32, ReduceOp::kSum, {1.5F}), 1.5F);
  const auto nan = std::bit_cast<float>(0xFFABCDEFU);
  EXPECT_EQ(std::bit_cast<uint32_t>(reduce_one<float>(DataType::kFloat32, ReduceOp::kSum, {nan})),
            0x7FC00000U);
}

TEST(Reference, IntegersOfEveryWidthWrap) {
  EXPECT_EQ(reduce_one<int8_t>(DataType::kInt8, ReduceOp::kSum, {100, 100}), -56);
  EXPECT_EQ(reduce_one<int8_t>(DataType::kInt8, ReduceOp::kAvg, {100, 100}, 2, true), -28);
  EXPECT_EQ(reduce_one<int8_t>(DataType::kInt8, ReduceOp::kAvg, {-128, 1}, 2, true), -63);
  EXPECT_EQ(reduce_one<int16_t>(DataType::kInt16, ReduceOp::kSum, {32767, 1}), -32768);
  EXPECT_EQ(reduce_one<uint16_t>(DataType::kUInt16, ReduceOp::kProduct, {65535, 65535}), 1);
  EXPECT_EQ(reduce_one<uint32_t>(DataType::kUInt32, ReduceOp::kSum, {4294967295U, 2}), 1U);
  constexpr uint64_t kMost = std::numeric_limits<uint64_t>::max();
  EXPECT_EQ(reduce_one<uint64_t>(DataType::kUInt64, ReduceOp::kMax, {1, kMost}), kMost);
  EXPECT_EQ(reduce_one<uint64_t>(DataType::kUInt64, ReduceOp::kMin, {1, kMost}), 1U);
  EXPECT_EQ(reduce_one<uint64_t>(DataType::kUInt64, ReduceOp::kAvg, {kMost, 0}, 2, true),
            kMost / 2);
  EXPECT_EQ(reduce_one<uint32_t>(DataType::kUInt32, ReduceOp::kMax, {1, 1U << 31}), 1U << 31);
  EXPECT_EQ(reduce_one<int8_t>(DataType::kInt8, ReduceOp::kMin, {1, -128}), -128);
}

TEST(Reference, BitsOfIntegers) {
  const std::vector<uint16_t> values = {0xF0F1, 0xFF00, 0x3331};
  EXPECT_EQ(reduce_one(DataType::kUInt16, ReduceOp::kBAnd, values), 0xF0F1 & 0xFF00 & 0x3331);
  EXPECT_EQ(reduce_one(DataType::kUInt16, ReduceOp::kBOr, values), 0xF0F1 | 0xFF00 | 0x3331);
  EXPECT_EQ(reduce_one(DataType::kUInt16, ReduceOp::kBXor, values), 0xF0F1 ^ 0xFF00 ^ 0x3331);
  EXPECT_EQ(reduce_one<int64_t>(DataType::kInt64, ReduceOp::kBOr, {-2, 1}), -1);
}

TEST(Reference, BoolsAreTruthValues) {
  const auto all = [](ReduceOp op) {  // of false and false, false and true, true and true
    std::string results;
    for (const std::vector<uint8_t>& values :
         std::vector<std::vector<uint8_t>>{{0, 0}, {0, 1}, {1, 0}, {1, 1}}) {
      results += static_cast<char>('0' + reduce_one(DataType::kBool, op, values));
    }
    return results;
  };
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kBOr}) {
    EXPECT_EQ(all(op), "0111") << name_of(op);
  }
  for (const ReduceOp op : {ReduceOp::kProduct, ReduceOp::kMin, ReduceOp::kBAnd}) {
    EXPECT_EQ(all(op), "0001") << name_of(op);
  }
  EXPECT_EQ(all(ReduceOp::kBXor), "0110");
  // Any byte but 0 is true, and true is written as 1.
  EXPECT_EQ(reduce_one<uint8_t>(DataType::kBool, ReduceOp::kBAnd, {2, 4}), 1);
  EXPECT_EQ(reduce_one<uint8_t>(DataType::kBool, ReduceOp::kBXor, {2, 4}), 0);
  EXPECT_EQ(reduce_one<uint8_t>(DataType::kBool, ReduceOp::kSum, {255}), 1);
}

TEST(Reference, ComplexNumbers) {
  using C = std::complex<float>;
  const DataType dtype = DataType::kComplex64;
  const std::vector<C> values = {{1, 2}, {3, -4}, {-5, 6}};
  EXPECT_EQ(reduce_one(dtype, ReduceOp::kSum, values), C(-1, 4));
  EXPECT_EQ(reduce_one(dtype, ReduceOp::kProduct, values), C(11, 2) * C(-5, 6));
  EXPECT_EQ(reduce_one<C>(dtype, ReduceOp::kAvg, {{1, 2}, {3, -4}}, 2, true), C(2, -1));
  const float most = std::numeric_limits<float>::max();
  EXPECT_EQ(reduce_one<C>(dtype, ReduceOp::kAvg, {{most, -most}, {most, -most}}, 2, true),
            C(most, -most));
  using Z = std::complex<double>;
  EXPECT_EQ(reduce_one<Z>(DataType::kComplex128, ReduceOp::kProduct, {{0, 1}, {0, 1}}), Z(-1, 0));
  // A NaN in one part does not touch the other one of a sum, and is canonical.
  const C sum =
      reduce_one<C>(dtype, ReduceOp::kSum, {{std::bit_cast<float>(0xFFABCDEFU), 1}, {1, 1}});
  EXPECT_EQ(std::bit_cast<uint32_t>(sum.real()), 0x7FC00000U);
  EXPECT_EQ(sum.imag(), 2.0F);
}

// A float dtype, for tests of all of them: its numbers as float64, and what bounds an error.
struct FloatFormat {
  DataType dtype;
  int digits;    // significant bits
  double most;   // the largest number
  double least;  // the least subnormal
  double (*load)(const std::byte*);
  void (*store)(double, std::byte*);
};

template <typename T>
T at(const std::byte* p) {
  T value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

template <typename T>
FloatFormat plain_format(DataType dtype) {
  using Limits = std::numeric_limits<T>;
  return {dtype,
          Limits::digits,
          static_cast<double>(Limits::max()),
          static_cast<double>(Limits::denorm_min()),
          [](const std::byte* p) { return static_cast<double>(at<T>(p)); },
          [](double value, std::byte* p) {
            const T stored = static_cast<T>(value);
            std::memcpy(p, &stored, sizeof stored);
          }};
}

template <typename T, float (*widen)(T), T (*narrow)(float)>
FloatFormat small_format(DataType dtype, int digits, double most, double least) {
  return {dtype,
          digits,
          most,
          least,
          [](const std::byte* p) { return double{widen(at<T>(p))}; },
          [](double value, std::byte* p) {
            const T stored = narrow(static_cast<float>(value));
            std::memcpy(p, &stored, sizeof stored);
          }};
}

const FloatFormat kFloatFormats[] = {
    plain_format<float>(DataType::kFloat32),
    plain_format<double>(DataType::kFloat64),
    small_format<uint16_t, half_to_float, float_to_half>(DataType::kFloat16, 11, 65504, 0x1p-24),
    small_format<uint16_t, bfloat16_to_float, float_to_bfloat16>(DataType::kBFloat16, 8, 0x1.FEp127,
                                                                 0x1p-133),
    small_format<uint8_t, float8_to_float<E4M3FN>, float_to_float8<E4M3FN>>(DataType::kFloat8E4M3FN,
                                                                            4, 448, 0x1p-9),
    small_format<uint8_t, float8_to_float<E5M2>, float_to_float8<E5M2>>(DataType::kFloat8E5M2, 3,
                                                                        57344, 0x1p-16),
};

// Of one element of each of `values`, by the code that runs and by the reference.
double reduced(const FloatFormat& format, ReduceOp op, const std::vector<double>& values) {
  const auto ranks = static_cast<int>(values.size());
  const size_t size = size_of(format.dtype);
  std::vector<std::byte> memory(values.size() * size);
  std::vector<Operand> operands;
  for (size_t i = 0; i < values.size(); ++i) {
    format.store(values[i], memory.data() + i * size);
    operands.push_back({memory.data() + i * size, true});
  }
  std::byte result[8];
  std::byte expected[8];
  reduce({format.dtype, op, ranks}, operands, true, result, 1);
  reduce_scalar({format.dtype, op, ranks}, operands, true, expected, 1);
  EXPECT_EQ(std::memcmp(result, expected, size), 0) << name_of(format.dtype);
  return format.load(result);
}

// One rounding to the format, and for each operand one to what is computed in.
TEST(FloatErrors, SumsAndAveragesAreNearThoseOfFloat64) {
  std::mt19937 random(11);
  for (const FloatFormat& format : kFloatFormats) {
    const double step = std::ldexp(1.0, -std::max(format.digits, 24));
    for (size_t ranks = 2; ranks <= 64; ++ranks) {
      for (const double low : {-1.0, 0.5}) {
        std::uniform_real_distribution<double> uniform(low, 1.5);
        std::vector<double> values(ranks);
        long double sum = 0;
        long double magnitude = 0;
        for (double& value : values) {
          std::byte stored[8];
          format.store(uniform(random), stored);
          value = format.load(stored);
          sum += value;
          magnitude += std::fabs(value);
        }
        const auto bound = [&](long double exact, long double size) {
          const long double rounding = std::ldexp(std::fabs(exact), -format.digits);
          return rounding + static_cast<long double>(ranks) * step * size + format.least / 2;
        };
        const long double average = sum / ranks;
        EXPECT_LE(std::fabs(reduced(format, ReduceOp::kSum, values) - sum), bound(sum, magnitude))
            << name_of(format.dtype) << " of " << ranks;
        EXPECT_LE(std::fabs(reduced(format, ReduceOp::kAvg, values) - average),
                  bound(average, magnitude / ranks))
            << name_of(format.dtype) << " of " << ranks;
      }
    }
  }
}

// The sum of such numbers overflows, so they have to be scaled before they are added.
TEST(FloatErrors, AveragesNearTheLargestNumberAreFinite) {
  for (const FloatFormat& format : kFloatFormats) {
    for (size_t ranks = 2; ranks <= 64; ++ranks) {
      const double allowed = std::ldexp(1.0, -format.digits) +
                             std::ldexp(static_cast<double>(ranks), -std::max(format.digits, 24));
      for (const double factor : {0.62, 0.99}) {
        std::byte stored[8];
        format.store(factor * format.most, stored);
        const double large = format.load(stored);
        EXPECT_FALSE(std::isfinite(reduced(format, ReduceOp::kSum, std::vector(ranks, large))))
            << name_of(format.dtype);
        for (const double value : {large, -large}) {
          const double average = reduced(format, ReduceOp::kAvg, std::vector(ranks, value));
          EXPECT_NEAR(average / value, 1.0, allowed) << name_of(format.dtype) << " of " << ranks;
        }
      }
    }
  }
}

}  // namespace
}  // namespace ciuic::kernels
