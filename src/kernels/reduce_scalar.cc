// SPDX-License-Identifier: Apache-2.0
// reduce_scalar.cc: the reference: one element after the other, with nothing but C++.

#include <bit>
#include <cstring>
#include <limits>
#include <type_traits>

#include "base/assert.h"
#include "kernels/average.h"
#include "kernels/half.h"
#include "kernels/reduce.h"

namespace ciuic::kernels {

namespace {

// A format says how an element lies in memory and in what type it is computed.
template <typename T>
struct Plain {
  using Stored = T;
  using Computed = T;
  static T widen(T stored) { return stored; }
  static T narrow(T value) {
    if constexpr (std::is_floating_point_v<T>) {
      if (value != value) return std::numeric_limits<T>::quiet_NaN();
    }
    return value;
  }
  static AverageFactors<T> factors(int ranks) {
    if constexpr (std::is_floating_point_v<T>) {
      return average_factors<T>(ranks);
    } else {
      return {};
    }
  }
};

struct Half {
  using Stored = uint16_t;
  using Computed = float;
  static float widen(uint16_t stored) { return half_to_float(stored); }
  static uint16_t narrow(float value) { return float_to_half(value); }
  static AverageFactors<float> factors(int ranks) { return average_factors_of_half(ranks); }
};

struct BFloat16 {
  using Stored = uint16_t;
  using Computed = float;
  static float widen(uint16_t stored) { return bfloat16_to_float(stored); }
  static uint16_t narrow(float value) { return float_to_bfloat16(value); }
  static AverageFactors<float> factors(int ranks) { return average_factors_of_half(ranks); }
};

// Integers wrap, which C++ says of unsigned ones only. uint8_t would become int, which cannot
// overflow here.
template <typename T>
T sum(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    using Unsigned = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<Unsigned>(a) + static_cast<Unsigned>(b));
  } else {
    return a + b;
  }
}

template <typename T>
T product(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    using Unsigned = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<Unsigned>(a) * static_cast<Unsigned>(b));
  } else {
    return a * b;
  }
}

// IEEE 754-2019 minimum and maximum: a NaN wins; equal numbers differ at most in a zero's sign.
template <typename T, bool larger>
T extreme(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    using Bits = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
    if (a != a) return a;
    if (b != b) return b;
    if (a == b) {
      const Bits x = std::bit_cast<Bits>(a);
      const Bits y = std::bit_cast<Bits>(b);
      return std::bit_cast<T>(larger ? x & y : x | y);
    }
  }
  return (a < b) != larger ? a : b;
}

template <typename T>
T combine(ReduceOp op, T a, T b) {
  switch (op) {
    case ReduceOp::kSum: return sum(a, b);
    case ReduceOp::kAvg: return sum(a, b);
    case ReduceOp::kMin: return extreme<T, false>(a, b);
    case ReduceOp::kMax: return extreme<T, true>(a, b);
    case ReduceOp::kProduct: return product(a, b);
  }
  return a;
}

template <class Format>
void reduce_elements(const Reduction& reduction, std::span<const Operand> operands, bool final,
                     std::byte* target, int64_t count) {
  using Stored = typename Format::Stored;
  using Computed = typename Format::Computed;
  const bool average = reduction.op == ReduceOp::kAvg;
  const AverageFactors<Computed> factors = Format::factors(reduction.ranks);

  const auto read = [&](const Operand& operand, int64_t i) {
    Stored stored;
    std::memcpy(&stored, operand.data + static_cast<size_t>(i) * sizeof stored, sizeof stored);
    const Computed value = Format::widen(stored);
    return average && operand.raw ? product(value, factors.raw) : value;
  };

  for (int64_t i = 0; i < count; ++i) {
    Computed value = read(operands[0], i);
    for (const Operand& operand : operands.subspan(1)) {
      value = combine(reduction.op, value, read(operand, i));
    }
    if (average && final) {
      if constexpr (std::is_integral_v<Computed>) {
        value = static_cast<Computed>(value / static_cast<int64_t>(reduction.ranks));
      } else {
        value = value * factors.final;
      }
    }
    const Stored stored = Format::narrow(value);
    std::memcpy(target + static_cast<size_t>(i) * sizeof stored, &stored, sizeof stored);
  }
}

}  // namespace

void reduce_scalar(const Reduction& reduction, std::span<const Operand> operands, bool final,
                   std::byte* target, int64_t count) {
  CIUIC_ASSERT(!operands.empty() && count >= 0 && reduction.ranks >= 1);
  const auto run = [&]<class Format>(Format) {
    reduce_elements<Format>(reduction, operands, final, target, count);
  };
  switch (reduction.dtype) {
    case DataType::kFloat32: return run(Plain<float>{});
    case DataType::kFloat64: return run(Plain<double>{});
    case DataType::kFloat16: return run(Half{});
    case DataType::kBFloat16: return run(BFloat16{});
    case DataType::kInt32: return run(Plain<int32_t>{});
    case DataType::kInt64: return run(Plain<int64_t>{});
    case DataType::kUInt8: return run(Plain<uint8_t>{});
  }
  CIUIC_ASSERT(false);
}

}  // namespace ciuic::kernels
