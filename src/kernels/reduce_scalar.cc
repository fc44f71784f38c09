// SPDX-License-Identifier: Apache-2.0
// reduce_scalar.cc: the reference: one element after the other, with nothing but C++.

#include <bit>
#include <cstring>
#include <limits>
#include <type_traits>

#include "base/assert.h"
#include "kernels/average.h"
#include "kernels/float8.h"
#include "kernels/half.h"
#include "kernels/reduce.h"

namespace ciuic::kernels {

namespace {

template <typename T>
T canonical(T value) {
  return value != value ? std::numeric_limits<T>::quiet_NaN() : value;
}

// A format says how an element lies in memory and in what type it is computed.
template <typename T>
struct Plain {
  using Stored = T;
  using Computed = T;
  static T widen(T stored) { return stored; }
  static T narrow(T value) {
    if constexpr (std::is_floating_point_v<T>) return canonical(value);
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

// 16-bit and 8-bit floats, computed in float32.
template <typename T, float (*to_float)(T), T (*from_float)(float)>
struct Small {
  using Stored = T;
  using Computed = float;
  static float widen(T stored) { return to_float(stored); }
  static T narrow(float value) { return from_float(value); }
  static AverageFactors<float> factors(int ranks) { return average_factors_of_small(ranks); }
};

using Half = Small<uint16_t, half_to_float, float_to_half>;
using BFloat16 = Small<uint16_t, bfloat16_to_float, float_to_bfloat16>;
template <class Shape>
using Float8 = Small<uint8_t, float8_to_float<Shape>, float_to_float8<Shape>>;

template <typename T>
struct Complex {
  T real;
  T imaginary;
};

// Averaged as its floats are.
template <typename T>
struct ComplexOf {
  using Stored = Complex<T>;
  using Computed = Complex<T>;
  static Complex<T> widen(Complex<T> stored) { return stored; }
  static Complex<T> narrow(Complex<T> value) {
    return {canonical(value.real), canonical(value.imaginary)};
  }
  static AverageFactors<T> factors(int ranks) { return average_factors<T>(ranks); }
};

struct Bool {
  using Stored = uint8_t;
  using Computed = bool;
  static bool widen(uint8_t stored) { return stored != 0; }
  static uint8_t narrow(bool value) { return value ? 1 : 0; }
  static AverageFactors<float> factors(int /*ranks*/) { return {}; }
};

// Integers wrap, which C++ says of unsigned ones only, and of those that do not become int.
template <typename T>
using Wrapping = std::common_type_t<std::make_unsigned_t<T>, unsigned>;

template <typename T>
T sum(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(static_cast<Wrapping<T>>(a) + static_cast<Wrapping<T>>(b));
  } else {
    return a + b;
  }
}

template <typename T>
Complex<T> sum(Complex<T> a, Complex<T> b) {
  return {a.real + b.real, a.imaginary + b.imaginary};
}

template <typename T>
T product(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(static_cast<Wrapping<T>>(a) * static_cast<Wrapping<T>>(b));
  } else {
    return a * b;
  }
}

// By the school's formula, as NumPy: an infinity times another number may be NaN.
template <typename T>
Complex<T> product(Complex<T> a, Complex<T> b) {
  return {a.real * b.real - a.imaginary * b.imaginary, a.real * b.imaginary + a.imaginary * b.real};
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

bool combine(ReduceOp op, bool a, bool b) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kMax:
    case ReduceOp::kBOr: return a || b;
    case ReduceOp::kProduct:
    case ReduceOp::kMin:
    case ReduceOp::kBAnd: return a && b;
    case ReduceOp::kBXor: return a != b;
    case ReduceOp::kAvg: break;
  }
  return a;
}

template <typename T>
Complex<T> combine(ReduceOp op, Complex<T> a, Complex<T> b) {
  return op == ReduceOp::kProduct ? product(a, b) : sum(a, b);
}

template <typename T>
T combine(ReduceOp op, T a, T b) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAvg: return sum(a, b);
    case ReduceOp::kMin: return extreme<T, false>(a, b);
    case ReduceOp::kMax: return extreme<T, true>(a, b);
    case ReduceOp::kProduct: return product(a, b);
    default: break;
  }
  if constexpr (std::is_integral_v<T>) {
    if (op == ReduceOp::kBAnd) return static_cast<T>(a & b);
    if (op == ReduceOp::kBOr) return static_cast<T>(a | b);
    if (op == ReduceOp::kBXor) return static_cast<T>(a ^ b);
  }
  return a;
}

template <typename T, typename Factor>
T scaled(T value, Factor factor) {
  if constexpr (std::is_floating_point_v<T>) {
    return value * factor;
  } else {
    return value;
  }
}

template <typename T>
Complex<T> scaled(Complex<T> value, T factor) {
  return {value.real * factor, value.imaginary * factor};
}

// What is left to do for a complete sum. Integers are divided, which truncates.
template <typename T, typename Factor>
T averaged(T value, int ranks, Factor factor) {
  if constexpr (std::is_integral_v<T>) {
    using Wide = std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>;
    return static_cast<T>(static_cast<Wide>(value) / static_cast<Wide>(ranks));
  } else {
    return scaled(value, factor);
  }
}

template <class Format>
void reduce_elements(const Reduction& reduction, std::span<const Operand> operands, bool final,
                     std::byte* target, int64_t count) {
  using Stored = typename Format::Stored;
  using Computed = typename Format::Computed;
  const bool average = reduction.op == ReduceOp::kAvg;
  const auto factors = Format::factors(reduction.ranks);

  const auto read = [&](const Operand& operand, int64_t i) {
    Stored stored;
    std::memcpy(&stored, operand.data + static_cast<size_t>(i) * sizeof stored, sizeof stored);
    const Computed value = Format::widen(stored);
    return average && operand.raw ? scaled(value, factors.raw) : value;
  };

  for (int64_t i = 0; i < count; ++i) {
    Computed value = read(operands[0], i);
    for (const Operand& operand : operands.subspan(1)) {
      value = combine(reduction.op, value, read(operand, i));
    }
    if (average && final) value = averaged(value, reduction.ranks, factors.final);
    const Stored stored = Format::narrow(value);
    std::memcpy(target + static_cast<size_t>(i) * sizeof stored, &stored, sizeof stored);
  }
}

}  // namespace

void reduce_scalar(const Reduction& reduction, std::span<const Operand> operands, bool final,
                   std::byte* target, int64_t count) {
  CIUIC_ASSERT(!operands.empty() && count >= 0 && reduction.ranks >= 1);
  CIUIC_ASSERT(is_reducible(reduction.dtype, reduction.op));
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
    case DataType::kInt8: return run(Plain<int8_t>{});
    case DataType::kInt16: return run(Plain<int16_t>{});
    case DataType::kUInt16: return run(Plain<uint16_t>{});
    case DataType::kUInt32: return run(Plain<uint32_t>{});
    case DataType::kUInt64: return run(Plain<uint64_t>{});
    case DataType::kBool: return run(Bool{});
    case DataType::kComplex64: return run(ComplexOf<float>{});
    case DataType::kComplex128: return run(ComplexOf<double>{});
    case DataType::kFloat8E4M3FN: return run(Float8<E4M3FN>{});
    case DataType::kFloat8E5M2: return run(Float8<E5M2>{});
  }
  CIUIC_ASSERT(false);
}

}  // namespace ciuic::kernels
