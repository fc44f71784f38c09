// SPDX-License-Identifier: Apache-2.0
// values.cc: small numbers in every dtype, and their reductions.

#include "sim/values.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "sim/random.h"

namespace ciuic::sim {
namespace {

// At most so many ranks contribute to a sum of 8-bit floats, 1 or -1 each: e5m2 holds every whole
// number up to 8, and none between 8 and 10.
constexpr int kFloat8Terms = 8;

// A complex number is two floats; anything else is one number.
struct Parts {
  DataType dtype;
  int count;
};

Parts parts_of(DataType dtype) {
  if (dtype == DataType::kComplex64) return {DataType::kFloat32, 2};
  if (dtype == DataType::kComplex128) return {DataType::kFloat64, 2};
  return {dtype, 1};
}

bool is_float8(DataType dtype) {
  return dtype == DataType::kFloat8E4M3FN || dtype == DataType::kFloat8E5M2;
}

bool is_float(DataType dtype) {
  const DataType part = parts_of(dtype).dtype;
  return part == DataType::kFloat32 || part == DataType::kFloat64 || part == DataType::kFloat16 ||
         part == DataType::kBFloat16 || is_float8(part);
}

// How a float of 16 or 8 bits lies in memory.
struct Shape {
  int exponent_bits;
  int mantissa_bits;
  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
};

constexpr Shape kHalf = {5, 10};
constexpr Shape kBFloat16 = {8, 7};
constexpr Shape kE4M3 = {4, 3};
constexpr Shape kE5M2 = {5, 2};

// A number that the shape holds exactly, and not as a subnormal one.
uint16_t bits_of(const Shape& shape, int64_t value) {
  if (value == 0) return 0;
  int exponent = 0;
  const double fraction = std::frexp(std::fabs(static_cast<double>(value)), &exponent);
  const int one = 1 << shape.mantissa_bits;
  const int mantissa = static_cast<int>(std::ldexp(fraction, shape.mantissa_bits + 1)) - one;
  const int magnitude = (exponent - 1 + shape.bias()) << shape.mantissa_bits | mantissa;
  const int sign = value < 0 ? 1 << (shape.exponent_bits + shape.mantissa_bits) : 0;
  return static_cast<uint16_t>(sign | magnitude);
}

double value_of(const Shape& shape, int bits) {
  const int sign = 1 << (shape.exponent_bits + shape.mantissa_bits);
  const int magnitude = bits & (sign - 1);
  const int infinity = ((1 << shape.exponent_bits) - 1) << shape.mantissa_bits;
  const int mantissa = magnitude & ((1 << shape.mantissa_bits) - 1);
  const int exponent = magnitude >> shape.mantissa_bits;
  const int whole = exponent == 0 ? mantissa : mantissa | 1 << shape.mantissa_bits;
  double value = std::ldexp(whole, std::max(exponent, 1) - shape.bias() - shape.mantissa_bits);
  const bool has_infinity = shape.exponent_bits != kE4M3.exponent_bits;
  if (has_infinity && magnitude >= infinity) value = magnitude == infinity ? HUGE_VAL : NAN;
  if (!has_infinity && magnitude == sign - 1) value = NAN;
  return (bits & sign) != 0 ? -value : value;
}

template <typename T>
void put(T value, std::byte* at) {
  std::memcpy(at, &value, sizeof(value));
}

template <typename T>
T get(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(value));
  return value;
}

// One part of an element.
void encode(DataType dtype, int64_t value, std::byte* at) {
  switch (dtype) {
    case DataType::kFloat32: return put(static_cast<float>(value), at);
    case DataType::kFloat64: return put(static_cast<double>(value), at);
    case DataType::kFloat16: return put(bits_of(kHalf, value), at);
    case DataType::kBFloat16: return put(bits_of(kBFloat16, value), at);
    case DataType::kFloat8E4M3FN: return put(static_cast<uint8_t>(bits_of(kE4M3, value)), at);
    case DataType::kFloat8E5M2: return put(static_cast<uint8_t>(bits_of(kE5M2, value)), at);
    default: break;
  }
  switch (size_of(dtype)) {
    case 1: return put(static_cast<uint8_t>(value), at);
    case 2: return put(static_cast<uint16_t>(value), at);
    case 4: return put(static_cast<uint32_t>(value), at);
    default: return put(value, at);
  }
}

// As the dtype's own arithmetic, which wraps, leaves it; of uint64 the same bits.
int64_t wrapped(DataType dtype, int64_t value) {
  switch (dtype) {
    case DataType::kInt8: return static_cast<int8_t>(value);
    case DataType::kInt16: return static_cast<int16_t>(value);
    case DataType::kInt32: return static_cast<int32_t>(value);
    case DataType::kUInt8: return static_cast<uint8_t>(value);
    case DataType::kUInt16: return static_cast<uint16_t>(value);
    case DataType::kUInt32: return static_cast<uint32_t>(value);
    case DataType::kBool: return value & 1;
    default: return value;
  }
}

double decode(DataType dtype, const std::byte* at) {
  switch (dtype) {
    case DataType::kFloat32: return get<float>(at);
    case DataType::kFloat64: return get<double>(at);
    case DataType::kFloat16: return value_of(kHalf, get<uint16_t>(at));
    case DataType::kBFloat16: return value_of(kBFloat16, get<uint16_t>(at));
    case DataType::kFloat8E4M3FN: return value_of(kE4M3, get<uint8_t>(at));
    case DataType::kFloat8E5M2: return value_of(kE5M2, get<uint8_t>(at));
    case DataType::kBool: return get<uint8_t>(at);
    case DataType::kUInt64: return static_cast<double>(get<uint64_t>(at));
    default: break;
  }
  int64_t bits = 0;
  std::memcpy(&bits, at, size_of(dtype));
  return static_cast<double>(wrapped(dtype, bits));
}

int64_t combined(DataType dtype, ReduceOp op, int64_t a, int64_t b) {
  const auto x = static_cast<uint64_t>(a);  // unsigned, so that it may wrap
  const auto y = static_cast<uint64_t>(b);
  const bool less = dtype == DataType::kUInt64 ? x < y : a < b;
  const bool is_bool = dtype == DataType::kBool;
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAvg: return is_bool ? a | b : static_cast<int64_t>(x + y);
    case ReduceOp::kProduct: return static_cast<int64_t>(x * y);
    case ReduceOp::kMin: return less ? a : b;
    case ReduceOp::kMax: return less ? b : a;
    case ReduceOp::kBAnd: return a & b;
    case ReduceOp::kBOr: return a | b;
    case ReduceOp::kBXor: return a ^ b;
  }
  return a;
}

int64_t divided(DataType dtype, int64_t sum, int ranks) {
  if (dtype != DataType::kUInt64) return sum / ranks;
  return static_cast<int64_t>(static_cast<uint64_t>(sum) / static_cast<uint64_t>(ranks));
}

// Of a float: significant bits, and the least number that is not 0.
int precision(DataType dtype) {
  switch (dtype) {
    case DataType::kFloat64: return 53;
    case DataType::kFloat32: return 24;
    case DataType::kFloat16: return 11;
    case DataType::kFloat8E4M3FN: return 4;
    case DataType::kFloat8E5M2: return 3;
    default: return 8;
  }
}

// How far an average may be from the exact one; `magnitude`: that of all terms together.
double tolerance_of(DataType dtype, double magnitude, int ranks) {
  if (std::has_single_bit(static_cast<unsigned>(ranks)) && ranks <= 512) return 0;
  const double relative = magnitude / ranks * std::ldexp(1, -precision(dtype));
  if (!is_float8(dtype)) return relative * (2 + std::log2(ranks));
  return (kFloat8Terms + 2) * (relative + 0x1p-10);  // half of e4m3fn's least number, too
}

// How many times the contribution a part of an element is: the real part once, the imaginary part
// twice, but of products not at all, so that they stay small.
int factor_of(int part, ReduceOp op) {
  if (part == 0) return 1;
  return op == ReduceOp::kProduct ? 0 : 2;
}

// Empty where the part at `at` is what the reduction of all ranks leaves.
std::string wrong_part(const Values& values, DataType dtype, const std::byte* at, int64_t reduced,
                       double magnitude) {
  const double got = decode(dtype, at);
  if (values.op == ReduceOp::kAvg && is_float(dtype)) {
    const double average = static_cast<double>(reduced) / values.ranks;
    if (std::fabs(got - average) <= tolerance_of(dtype, magnitude, values.ranks)) return "";
    return fmt::format("{} instead of {}", got, average);
  }
  std::byte exact[8];
  const bool is_divided = values.op == ReduceOp::kAvg;
  encode(dtype, is_divided ? divided(dtype, reduced, values.ranks) : reduced, exact);
  if (std::memcmp(exact, at, size_of(dtype)) == 0) return "";
  const bool is_complex = dtype != values.dtype;
  if (is_complex && values.op == ReduceOp::kProduct && reduced == 0 && got == 0) return "";  // -0
  return fmt::format("{} instead of {}", got, decode(dtype, exact));
}

}  // namespace

int64_t Values::contribution(int rank, int64_t index) const {
  const uint64_t hash = mix(seed ^ mix(static_cast<uint64_t>(index) * 1024 + rank));
  if (!is_float(dtype)) return wrapped(dtype, static_cast<int64_t>(hash));
  const bool is_tiny = is_float8(dtype);
  const auto within = [hash](int64_t most) {
    return static_cast<int64_t>(hash % static_cast<uint64_t>(2 * most + 1)) - most;
  };
  if (op == ReduceOp::kMin || op == ReduceOp::kMax) return within(is_tiny ? kFloat8Terms : 200);
  if (op == ReduceOp::kProduct) {
    const int64_t size = (index + rank) % 8 == 0 && rank < (is_tiny ? 48 : 80) ? 2 : 1;
    return hash % 2 == 0 ? size : -size;
  }
  if (!is_tiny) return within(std::clamp(200 / ranks, 1, 20));
  const int64_t apart = (ranks + kFloat8Terms - 1) / kFloat8Terms;
  return (index + rank) % apart == 0 ? within(1) : 0;
}

void Values::fill(int rank, int64_t count, std::byte* at) const {
  const Parts parts = parts_of(dtype);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t value = contribution(rank, i);
    for (int part = 0; part < parts.count; ++part, at += size_of(parts.dtype)) {
      encode(parts.dtype, value * factor_of(part, op), at);
    }
  }
}

std::string Values::check_reduced(const std::byte* result, int64_t count, int64_t first) const {
  const Parts parts = parts_of(dtype);
  for (int64_t i = 0; i < count; ++i) {
    int64_t value = contribution(0, first + i);
    double magnitude = std::fabs(static_cast<double>(value));
    for (int rank = 1; rank < ranks; ++rank) {
      const int64_t next = contribution(rank, first + i);
      magnitude += std::fabs(static_cast<double>(next));
      value = combined(dtype, op, value, next);
    }
    const std::byte* at = result + i * size_of(dtype);
    for (int part = 0; part < parts.count; ++part, at += size_of(parts.dtype)) {
      const int factor = factor_of(part, op);
      const std::string wrong =
          wrong_part(*this, parts.dtype, at, wrapped(dtype, value) * factor, magnitude * factor);
      if (!wrong.empty()) return fmt::format("element {}: {}", i, wrong);
    }
  }
  return "";
}

std::string Values::check_copied(int rank, const std::byte* result, int64_t count,
                                 int64_t first) const {
  const size_t element = size_of(dtype);
  std::byte exact[16];
  for (int64_t i = 0; i < count; ++i) {
    const int64_t value = contribution(rank, first + i);
    const Parts parts = parts_of(dtype);
    for (int part = 0; part < parts.count; ++part) {
      encode(parts.dtype, value * factor_of(part, op), exact + part * size_of(parts.dtype));
    }
    if (std::memcmp(exact, result + i * element, element) != 0) {
      return fmt::format("element {} of rank {}'s: {} instead of {}", i, rank,
                         decode(parts.dtype, result + i * element), decode(parts.dtype, exact));
    }
  }
  return "";
}

}  // namespace ciuic::sim
