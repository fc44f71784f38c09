// SPDX-License-Identifier: Apache-2.0
// values_test.cc: the simulator's own arithmetic, against numbers worked out by hand.

#include "sim/values.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <vector>

#include "kernels/reduce.h"

namespace ciuic::sim {
namespace {

// What all ranks' contributions add up to, by a plain loop in the dtype itself.
template <typename T>
std::vector<std::byte> sums(const Values& values, int64_t count) {
  std::vector<std::byte> result(count * sizeof(T));
  std::vector<std::byte> part(count * sizeof(T));
  for (int rank = 0; rank < values.ranks; ++rank) {
    values.fill(rank, count, part.data());
    for (int64_t i = 0; i < count; ++i) {
      T sum{};
      T term{};
      std::memcpy(&sum, result.data() + i * sizeof(T), sizeof(T));
      std::memcpy(&term, part.data() + i * sizeof(T), sizeof(T));
      sum = static_cast<T>(sum + term);
      std::memcpy(result.data() + i * sizeof(T), &sum, sizeof(T));
    }
  }
  return result;
}

TEST(Values, SumsAreExactAndEveryByteCounts) {
  const auto check = [](const Values& values, std::vector<std::byte> result) {
    const int64_t count = static_cast<int64_t>(result.size() / size_of(values.dtype));
    EXPECT_EQ(values.check_reduced(result.data(), count), "");
    for (size_t i = 0; i < result.size(); ++i) {
      result[i] ^= std::byte{1};
      EXPECT_NE(values.check_reduced(result.data(), count), "") << i;
      result[i] ^= std::byte{1};
    }
  };
  Values values{.dtype = DataType::kFloat32, .op = ReduceOp::kSum, .ranks = 5, .seed = 9};
  check(values, sums<float>(values, 7));
  values.dtype = DataType::kFloat64;
  check(values, sums<double>(values, 7));
  values.dtype = DataType::kInt64;
  check(values, sums<uint64_t>(values, 7));
  values.dtype = DataType::kInt32;
  check(values, sums<uint32_t>(values, 7));
  values.dtype = DataType::kUInt8;
  check(values, sums<uint8_t>(values, 7));
}

// Two ways to reckon, which share nothing: the reference of the kernels finds what is expected
// here, in rank order and hop by hop.
TEST(Values, AgreeWithTheKernelsOnEveryPair) {
  constexpr int64_t kCount = 40;
  const auto fold = [](const Values& values, bool by_hops) {
    const size_t bytes = kCount * size_of(values.dtype);
    const kernels::Reduction reduction{values.dtype, values.op, values.ranks};
    std::vector<std::byte> all(bytes * static_cast<size_t>(values.ranks));
    std::vector<kernels::Operand> operands;
    for (int rank = 0; rank < values.ranks; ++rank) {
      std::byte* own = all.data() + static_cast<size_t>(rank) * bytes;
      values.fill(rank, kCount, own);
      operands.push_back({own, true});
    }
    std::vector<std::byte> result(bytes);
    if (!by_hops) {
      kernels::reduce_scalar(reduction, operands, true, result.data(), kCount);
      return result;
    }
    result.assign(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(bytes));
    for (int rank = 1; rank < values.ranks; ++rank) {
      const kernels::Operand two[] = {{result.data(), rank == 1},
                                      operands[static_cast<size_t>(rank)]};
      kernels::reduce_scalar(reduction, two, rank + 1 == values.ranks, result.data(), kCount);
    }
    return result;
  };
  for (int dtype = 0; dtype < kDataTypes; ++dtype) {
    for (int op = 0; op < kReduceOps; ++op) {
      Values values{static_cast<DataType>(dtype), static_cast<ReduceOp>(op), 2, 77};
      if (!is_reducible(values.dtype, values.op)) continue;
      for (const int ranks : {2, 3, 7, 16, 61, 64, 200, 512, 1000}) {
        values.ranks = ranks;
        for (const bool by_hops : {false, true}) {
          std::vector<std::byte> result = fold(values, by_hops);
          EXPECT_EQ(values.check_reduced(result.data(), kCount), "")
              << name_of(values.dtype) << " " << name_of(values.op) << " of " << ranks;
          result.back() ^= std::byte{0x40};  // no rounding goes so far
          EXPECT_NE(values.check_reduced(result.data(), kCount), "")
              << name_of(values.dtype) << " " << name_of(values.op) << " of " << ranks;
        }
      }
    }
  }
}

TEST(Values, SmallFloatsAreEncodedExactly) {
  // One rank: the reduction is its contribution. 16-bit patterns of whole numbers, by hand.
  const auto bits = [](DataType dtype, int64_t number) -> uint16_t {
    for (uint64_t seed = 0; seed < 10'000; ++seed) {
      const Values values{.dtype = dtype, .op = ReduceOp::kMax, .ranks = 1, .seed = seed};
      if (values.contribution(0, 0) != number) continue;
      uint16_t pattern = 0;
      values.fill(0, 1, reinterpret_cast<std::byte*>(&pattern));
      return pattern;
    }
    return 0xffff;
  };
  EXPECT_EQ(bits(DataType::kFloat16, 0), 0x0000);
  EXPECT_EQ(bits(DataType::kFloat16, 1), 0x3c00);
  EXPECT_EQ(bits(DataType::kFloat16, -2), 0xc000);
  EXPECT_EQ(bits(DataType::kFloat16, 3), 0x4200);
  EXPECT_EQ(bits(DataType::kFloat16, 200), 0x5a40);
  EXPECT_EQ(bits(DataType::kBFloat16, 1), 0x3f80);
  EXPECT_EQ(bits(DataType::kBFloat16, -2), 0xc000);
  EXPECT_EQ(bits(DataType::kBFloat16, 200), 0x4348);
  EXPECT_EQ(bits(DataType::kFloat8E4M3FN, 0), 0x00);
  EXPECT_EQ(bits(DataType::kFloat8E4M3FN, 1), 0x38);
  EXPECT_EQ(bits(DataType::kFloat8E4M3FN, -2), 0xc0);
  EXPECT_EQ(bits(DataType::kFloat8E4M3FN, 7), 0x4e);
  EXPECT_EQ(bits(DataType::kFloat8E5M2, 1), 0x3c);
  EXPECT_EQ(bits(DataType::kFloat8E5M2, -2), 0xc0);
  EXPECT_EQ(bits(DataType::kFloat8E5M2, 7), 0x47);
}

TEST(Values, RanksAndPlacesDiffer) {
  const Values values{.dtype = DataType::kInt64, .op = ReduceOp::kSum, .ranks = 4, .seed = 3};
  EXPECT_NE(values.contribution(0, 5), values.contribution(1, 5));
  EXPECT_NE(values.contribution(0, 5), values.contribution(0, 6));
}

}  // namespace
}  // namespace ciuic::sim
