// SPDX-License-Identifier: Apache-2.0
// reduce_test.cc: SIMD against the scalar reference bit for bit on every instruction set that this
// processor has.

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
#include <utility>
#include <vector>

#include "kernels/half.h"

namespace ciuic::kernels {
namespace {

// Calls function(dtype, op) for every pair that exists.
template <class Function>
void for_all_pairs(Function function) {
  for (int dtype = 0; dtype < kDataTypes; ++dtype) {
    for (int op = 0; op < kReduceOps; ++op) {
      const auto pair = std::pair(static_cast<DataType>(dtype), static_cast<ReduceOp>(op));
      if (is_reducible(pair.first, pair.second)) function(pair.first, pair.second);
    }
  }
}

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

// Bits that are easily wrong: zeros, infinities, NaNs, subnormals, the largest and the smallest.
const std::vector<uint64_t>& specials(DataType dtype) {
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
      0,    1,    ~0ULL, 1ULL << 63, ~0ULL >> 1, 1ULL << 31, ~0ULL >> 33,
      0x80, 0x7F, 2,     3,          1ULL << 15, 0x7FFF};
  switch (dtype) {
    case DataType::kFloat32:
    case DataType::kComplex64: return kFloat32;
    case DataType::kFloat64:
    case DataType::kComplex128: return kFloat64;
    case DataType::kFloat16: return kFloat16;
    case DataType::kBFloat16: return kBFloat16;
    default: return kInteger;
  }
}

// Random bits hold every kind of number; every fourth one is special.
Bytes awkward(DataType dtype, size_t count, std::mt19937_64& random) {
  const std::vector<uint64_t>& special = specials(dtype);
  const bool complex = dtype == DataType::kComplex64 || dtype == DataType::kComplex128;
  const size_t part = size_of(dtype) / (complex ? 2 : 1);
  Bytes bytes(count * size_of(dtype));
  for (size_t at = 0; at < bytes.size(); at += part) {
    uint64_t value = random();
    if (value % 4 == 0) value = special[value / 4 % special.size()];
    std::memcpy(bytes.data() + at, &value, part);
  }
  return bytes;
}

// Enough for two vectors of any target at once, one more, and every tail.
size_t awkward_count(DataType dtype) { return 3 * 64 / size_of(dtype) + 3; }

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
  for_all_pairs([&](DataType dtype, ReduceOp op) {
    for (const size_t operands : {1, 2, 3, 5, 8}) {
      for (size_t count = 0; count <= awkward_count(dtype) && !HasFailure(); ++count) {
        const int ranks = static_cast<int>(count % 7) + 1;
        const bool final = count % 2 == 1;
        expect_same({{dtype, op, ranks}, operands, count, 0, -1, final}, random);
      }
    }
  });
}

TEST_P(OnEveryTarget, AllAlignmentsAndAliasesAgreeWithTheReference) {
  std::mt19937_64 random(8);
  for_all_pairs([&](DataType dtype, ReduceOp op) {
    for (const size_t operands : {1, 2, 3, 5}) {
      for (int alias = -1; alias < static_cast<int>(operands); ++alias) {
        for (const size_t offset : {0, 1, 2, 3, 4, 8, 15, 32, 63}) {
          if (HasFailure()) return;
          expect_same({{dtype, op, 6}, operands, awkward_count(dtype), offset, alias, true},
                      random);
        }
      }
    }
  });
}

TEST_P(OnEveryTarget, ManyOperandsAndLongBuffers) {
  std::mt19937_64 random(9);
  for_all_pairs([&](DataType dtype, ReduceOp op) {
    expect_same({{dtype, op, 65}, 65, 301, 4, 64, true}, random);
    expect_same({{dtype, op, 2}, 2, 20'011, 4, 1, true}, random);  // more than a block of divide()
    expect_same({{dtype, op, 3}, 3, 20'011, 1, -1, false}, random);
  });
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

// Every pair of 8-bit numbers, by every op that their dtype has.
TEST_P(OnEveryTarget, CombinesEveryPairOfBytesAsTheReference) {
  std::vector<uint8_t> left(0x10000);
  std::vector<uint8_t> right(0x10000);
  for (size_t i = 0; i < left.size(); ++i) {
    left[i] = static_cast<uint8_t>(i >> 8);
    right[i] = static_cast<uint8_t>(i);
  }
  for_all_pairs([&](DataType dtype, ReduceOp op) {
    if (size_of(dtype) != 1) return;
    for (const int ranks : {1, 2, 3}) {
      const Case c = {{dtype, op, ranks}, 2, left.size(), 0, -1, true};
      expect_same(c, {bytes_of(left), bytes_of(right)});
    }
  });
}

// Numbers of type T that are multiples of the divisor, or next to one, and the extreme ones.
template <typename T>
std::vector<T> near_multiples(int64_t divisor) {
  const auto most = static_cast<__int128>(std::numeric_limits<T>::max());
  const auto least = static_cast<__int128>(std::numeric_limits<T>::min());
  std::vector<T> numbers = {std::numeric_limits<T>::max(), std::numeric_limits<T>::min()};
  for (const __int128 quotient :
       {__int128{1}, most / divisor, most / divisor / 2, most % divisor}) {
    for (const int delta : {-1, 0, 1}) {
      const __int128 number = std::min(quotient * divisor + delta, most);
      numbers.push_back(static_cast<T>(number));
      if (least < 0) numbers.push_back(static_cast<T>(-number));
    }
  }
  return numbers;
}

template <typename T>
void expect_quotients(DataType dtype) {
  for (const int ranks :
       {2,   3,   5,     7,     10,    127,   128,   129,     255,           256,
        257, 641, 32767, 32768, 65535, 65536, 65537, 1 << 24, (1 << 24) + 1, 2147483647}) {
    const std::vector<T> numbers = near_multiples<T>(ranks);
    const Case c = {{dtype, ReduceOp::kAvg, ranks}, 1, numbers.size(), 0, -1, true};
    const auto got = values_of<T>(run(c, {bytes_of(numbers)}, reduce));
    for (size_t i = 0; i < numbers.size(); ++i) {
      const auto exact = static_cast<__int128>(numbers[i]) / ranks;
      ASSERT_EQ(got[i], static_cast<T>(exact)) << c.text() << " of " << +numbers[i];
    }
  }
}

TEST_P(OnEveryTarget, DividesIntegersNearMultiples) {
  expect_quotients<int8_t>(DataType::kInt8);
  expect_quotients<int16_t>(DataType::kInt16);
  expect_quotients<int32_t>(DataType::kInt32);
  expect_quotients<int64_t>(DataType::kInt64);
  expect_quotients<uint8_t>(DataType::kUInt8);
  expect_quotients<uint16_t>(DataType::kUInt16);
  expect_quotients<uint32_t>(DataType::kUInt32);
  expect_quotients<uint64_t>(DataType::kUInt64);
}

template <typename T>
void expect_all_quotients(DataType dtype) {
  std::vector<T> all(size_t{1} << 8 * sizeof(T));
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<T>(i);
  for (const int ranks : {2, 3, 5, 7, 10, 100, 127, 128, 129, 200, 251, 255, 256, 257, 1000}) {
    const Case c = {{dtype, ReduceOp::kAvg, ranks}, 1, all.size(), 0, -1, true};
    const auto got = values_of<T>(run(c, {bytes_of(all)}, reduce));
    for (size_t i = 0; i < all.size(); ++i) {
      ASSERT_EQ(got[i], static_cast<T>(all[i] / ranks)) << c.text() << " of " << +all[i];
    }
  }
}

TEST_P(OnEveryTarget, DividesEverySmallInteger) {
  expect_all_quotients<int8_t>(DataType::kInt8);
  expect_all_quotients<uint8_t>(DataType::kUInt8);
  expect_all_quotients<int16_t>(DataType::kInt16);
  expect_all_quotients<uint16_t>(DataType::kUInt16);
}

INSTANTIATE_TEST_SUITE_P(Targets, OnEveryTarget, ::testing::ValuesIn(targets()),
                         [](const auto& target) { return hwy::TargetName(target.param); });

}  // namespace
}  // namespace ciuic::kernels
