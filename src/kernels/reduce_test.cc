// SPDX-License-Identifier: Apache-2.0
// reduce_test.cc: SIMD against the scalar reference bit for bit on every instruction set that this
// processor has, and the reference against the definitions.

#include "kernels/reduce.h"

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "kernels/half.h"

namespace ciuic::kernels {
namespace {

constexpr DataType kAllTypes[] = {DataType::kFloat32,  DataType::kFloat64, DataType::kFloat16,
                                  DataType::kBFloat16, DataType::kInt32,   DataType::kInt64,
                                  DataType::kUInt8};
constexpr ReduceOp kAllOps[] = {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kMin, ReduceOp::kMax,
                                ReduceOp::kProduct};

using Bytes = std::vector<std::byte>;

template <typename T>
Bytes bytes_of(const std::vector<T>& values) {
  Bytes bytes(values.size() * sizeof(T));
  if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

template <typename T>
std::vector<T> values_of(const Bytes& bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

// Random bits hold every kind of number; every fourth element is one that is easily wrong: zeros,
// infinities, NaNs, subnormals, the largest and the smallest.
Bytes awkward(DataType dtype, size_t count, std::mt19937_64& random) {
  static const std::vector<uint64_t> kFloat32 = {0,          0x80000000, 0x7F800000, 0xFF800000,
                                                 0x7FC00001, 0xFFA00000, 1,          0x807FFFFF,
                                                 0x7F7FFFFF, 0x00800000, 0x3F800000, 0xBF800000};
  static const std::vector<uint64_t> kFloat64 = {
      0, 1ULL << 63,       0x7FF0ULL << 48,    0xFFF0ULL << 48, 0x7FF8000000000001, 0xFFF4ULL << 48,
      1, (1ULL << 63) + 5, 0x7FEFFFFFFFFFFFFF, 0x3FF0ULL << 48};
  static const std::vector<uint64_t> kFloat16 = {0,      0x8000, 0x7C00, 0xFC00, 0x7E01, 0xFD00,
                                                 0x0001, 0x83FF, 0x7BFF, 0x0400, 0x3C00, 0xBC00};
  static const std::vector<uint64_t> kBFloat16 = {0,      0x8000, 0x7F80, 0xFF80, 0x7FC1, 0xFFA0,
                                                  0x0001, 0x807F, 0x7F7F, 0x0080, 0x3F80, 0xBF80};
  static const std::vector<uint64_t> kInteger = {
      0, 1, ~0ULL, 1ULL << 63, ~0ULL >> 1, 1ULL << 31, ~0ULL >> 33, 0x80, 0x7F, 2, 3};
  const std::vector<uint64_t>& special = dtype == DataType::kFloat32    ? kFloat32
                                         : dtype == DataType::kFloat64  ? kFloat64
                                         : dtype == DataType::kFloat16  ? kFloat16
                                         : dtype == DataType::kBFloat16 ? kBFloat16
                                                                        : kInteger;
  Bytes bytes(count * size_of(dtype));
  for (size_t i = 0; i < count; ++i) {
    uint64_t value = random();
    if (value % 4 == 0) value = special[value / 4 % special.size()];
    std::memcpy(bytes.data() + i * size_of(dtype), &value, size_of(dtype));
  }
  return bytes;
}

// Puts the operands where the case wants them, runs `function`, and checks what must not change.
struct Case {
  Reduction reduction;
  size_t operands;
  size_t count;
  size_t offset;  // of every buffer from a 64-byte boundary
  int alias;      // the operand that is the target, or -1
  bool final;

  std::string text() const {
    return std::string(name_of(reduction.dtype)) + " " + name_of(reduction.op) +
           " operands=" + std::to_string(operands) + " count=" + std::to_string(count) +
           " offset=" + std::to_string(offset) + " alias=" + std::to_string(alias) +
           " target=" + simd_target();
  }
};

constexpr size_t kMargin = 64;
constexpr auto kGuard = std::byte{0xA5};

template <class Function>
Bytes run(const Case& c, const std::vector<Bytes>& inputs, Function function) {
  const size_t bytes = c.count * size_of(c.reduction.dtype);
  const size_t room = bytes + 3 * kMargin;
  std::vector<Bytes> memory(c.operands + 1, Bytes(room, kGuard));
  const auto start = [&](size_t buffer) {
    std::byte* base = memory[buffer].data() + kMargin;
    const size_t misaligned = reinterpret_cast<uintptr_t>(base) % kMargin;
    return base - misaligned + c.offset;
  };
  std::vector<Operand> operands;
  for (size_t j = 0; j < c.operands; ++j) {
    if (bytes != 0) std::memcpy(start(j), inputs[j].data(), bytes);
    operands.push_back({start(j), j % 2 == 0});
  }
  const size_t target = c.alias < 0 ? c.operands : static_cast<size_t>(c.alias);
  function(c.reduction, std::span<const Operand>(operands), c.final, start(target),
           static_cast<int64_t>(c.count));

  Bytes result(start(target), start(target) + bytes);
  for (size_t buffer = 0; buffer <= c.operands; ++buffer) {
    const bool written = buffer == target;
    const bool filled = written || buffer < c.operands;
    const auto first = static_cast<size_t>(start(buffer) - memory[buffer].data());
    for (size_t i = 0; i < room; ++i) {
      const bool inside = first <= i && i < first + bytes;
      if (inside && written) continue;
      const std::byte expected = inside && filled ? inputs[buffer][i - first] : kGuard;
      if (memory[buffer][i] != expected) {
        ADD_FAILURE() << c.text() << ": byte " << i << " of buffer " << buffer << " was changed";
        return result;
      }
    }
  }
  return result;
}

// Every instruction set that was compiled and that this processor has.
std::vector<int64_t> targets() {
  hwy::SetSupportedTargetsForTest(0);
  std::vector<int64_t> found;
  for (int64_t rest = hwy::SupportedTargets() & HWY_TARGETS & ~HWY_SSSE3; rest != 0;
       rest &= rest - 1) {
    found.push_back(rest & -rest);
  }
  return found;
}

void use_target(int64_t target) {
  hwy::SetSupportedTargetsForTest(target);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

class OnEveryTarget : public ::testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override {
    use_target(GetParam());
    ASSERT_STREQ(simd_target(), hwy::TargetName(GetParam()));
  }
  void TearDown() override { use_target(0); }

  void expect_same(const Case& c, std::mt19937_64& random) {
    std::vector<Bytes> inputs;
    for (size_t j = 0; j < c.operands; ++j) {
      inputs.push_back(awkward(c.reduction.dtype, c.count, random));
    }
    expect_same(c, inputs);
  }

  void expect_same(const Case& c, const std::vector<Bytes>& inputs) {
    const Bytes got = run(c, inputs, reduce);
    const Bytes expected = run(c, inputs, reduce_scalar);
    if (got == expected) return;
    size_t i = 0;
    while (got[i] == expected[i]) ++i;
    ADD_FAILURE() << c.text() << ": differs in element " << i / size_of(c.reduction.dtype);
  }
};

TEST_P(OnEveryTarget, AllTailsAgreeWithTheReference) {
  std::mt19937_64 random(7);
  for (const DataType dtype : kAllTypes) {
    for (const ReduceOp op : kAllOps) {
      for (const size_t operands : {1, 2, 3, 5, 8}) {
        for (size_t count = 0; count <= 130 && !HasFailure(); ++count) {
          const int ranks = static_cast<int>(count % 7) + 1;
          const bool final = count % 2 == 1;
          expect_same({{dtype, op, ranks}, operands, count, 0, -1, final}, random);
        }
      }
    }
  }
}

TEST_P(OnEveryTarget, AllAlignmentsAndAliasesAgreeWithTheReference) {
  std::mt19937_64 random(8);
  for (const DataType dtype : kAllTypes) {
    for (const ReduceOp op : kAllOps) {
      for (const size_t operands : {1, 2, 3, 5, 8}) {
        for (int alias = -1; alias < static_cast<int>(operands); ++alias) {
          for (const size_t offset : {0, 1, 2, 3, 4, 8, 15, 32, 63}) {
            for (const size_t count : {1, 33, 257}) {
              if (HasFailure()) return;
              expect_same({{dtype, op, 6}, operands, count, offset, alias, true}, random);
            }
          }
        }
      }
    }
  }
}

TEST_P(OnEveryTarget, ManyOperandsAndLongBuffers) {
  std::mt19937_64 random(9);
  for (const DataType dtype : kAllTypes) {
    for (const ReduceOp op : kAllOps) {
      expect_same({{dtype, op, 65}, 65, 301, 4, 64, true}, random);
      expect_same({{dtype, op, 2}, 2, 20'011, 4, 1, true}, random);
    }
  }
}

// Every 16-bit number read, and every one written.
TEST_P(OnEveryTarget, ConvertsEverySixteenBitNumber) {
  std::vector<uint16_t> all(0x10000);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
  for (const DataType dtype : {DataType::kFloat16, DataType::kBFloat16}) {
    const Case c = {{dtype, ReduceOp::kSum, 1}, 1, all.size(), 0, -1, true};
    const auto got = values_of<uint16_t>(run(c, {bytes_of(all)}, reduce));
    const bool half = dtype == DataType::kFloat16;
    for (size_t i = 0; i < all.size(); ++i) {
      const bool nan = (i & 0x7FFF) > (half ? 0x7C00U : 0x7F80U);
      ASSERT_EQ(got[i], nan ? (half ? 0x7E00 : 0x7FC0) : all[i]) << name_of(dtype) << " " << i;
    }
  }
}

// Each number times numbers whose product lies near the middle between two: rounding, subnormal
// results and overflow, everywhere in the range.
TEST_P(OnEveryTarget, RoundsEverySixteenBitNumberAsTheReference) {
  std::vector<uint16_t> all(0x10000);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
  const Bytes left = bytes_of(all);
  for (const DataType dtype : {DataType::kFloat16, DataType::kBFloat16}) {
    for (const float factor : {0.5F, 0.75F, 1.0078125F, 1.5F, 0x1p-9F, 0x1.04p-14F, 300.0F}) {
      const uint16_t stored =
          dtype == DataType::kFloat16 ? float_to_half(factor) : float_to_bfloat16(factor);
      const Bytes right = bytes_of(std::vector<uint16_t>(all.size(), stored));
      const Case c = {{dtype, ReduceOp::kProduct, 1}, 2, all.size(), 0, -1, true};
      expect_same(c, {left, right});
    }
  }
}

TEST_P(OnEveryTarget, DividesEveryByteByEveryDivisor) {
  std::vector<uint8_t> all(256);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint8_t>(i);
  for (const int ranks : {1, 2, 3, 5, 7, 10, 100, 127, 128, 129, 200, 251, 255, 256, 257, 1000}) {
    const Case c = {{DataType::kUInt8, ReduceOp::kAvg, ranks}, 1, all.size(), 0, -1, true};
    const Bytes got = run(c, {bytes_of(all)}, reduce);
    for (int i = 0; i < 256; ++i) {
      ASSERT_EQ(static_cast<int>(got[static_cast<size_t>(i)]), i / ranks) << i << "/" << ranks;
    }
  }
}

TEST_P(OnEveryTarget, DividesIntegersNearMultiples) {
  std::vector<int32_t> numbers;
  for (const int ranks : {2, 3, 7, 641, 65537, 2147483647}) {
    numbers.clear();
    for (int64_t quotient : {int64_t{1}, int64_t{2147483647} / ranks, int64_t{12345} % ranks}) {
      for (const int64_t delta : {-1, 0, 1}) {
        const int64_t number = std::min<int64_t>(quotient * ranks + delta, 2147483647);
        numbers.push_back(static_cast<int32_t>(number));
        numbers.push_back(static_cast<int32_t>(-number));
      }
    }
    numbers.push_back(std::numeric_limits<int32_t>::min());
    const Case c = {{DataType::kInt32, ReduceOp::kAvg, ranks}, 1, numbers.size(), 0, -1, true};
    const auto got = values_of<int32_t>(run(c, {bytes_of(numbers)}, reduce));
    for (size_t i = 0; i < numbers.size(); ++i) ASSERT_EQ(got[i], numbers[i] / ranks) << numbers[i];
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, OnEveryTarget, ::testing::ValuesIn(targets()),
                         [](const auto& target) { return hwy::TargetName(target.param); });

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

}  // namespace
}  // namespace ciuic::kernels
