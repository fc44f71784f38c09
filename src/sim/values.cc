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

bool is_float(DataType dtype) {
  return dtype == DataType::kFloat32 || dtype == DataType::kFloat64 ||
         dtype == DataType::kFloat16 || dtype == DataType::kBFloat16;
}

// A number that float16 holds exactly.
uint16_t half_bits(double value) {
  if (value == 0) return 0;
  int exponent = 0;
  const double fraction = std::frexp(std::fabs(value), &exponent);  // in [0.5, 1)
  const auto mantissa = static_cast<uint16_t>(std::ldexp(fraction, 11));
  const auto biased = static_cast<uint16_t>(exponent - 1 + 15);
  return static_cast<uint16_t>((value < 0 ? 0x8000 : 0) | (biased << 10) | (mantissa & 0x3ff));
}

double half_value(uint16_t bits) {
  const int biased = (bits >> 10) & 0x1f;
  const int mantissa = bits & 0x3ff;
  double value = biased == 0 ? std::ldexp(mantissa, -24) : std::ldexp(mantissa + 1024, biased - 25);
  if (biased == 0x1f) value = mantissa == 0 ? HUGE_VAL : NAN;
  return (bits & 0x8000) != 0 ? -value : value;
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

void encode(DataType dtype, int64_t value, std::byte* at) {
  switch (dtype) {
    case DataType::kFloat32: return put(static_cast<float>(value), at);
    case DataType::kFloat64: return put(static_cast<double>(value), at);
    case DataType::kFloat16: return put(half_bits(static_cast<double>(value)), at);
    case DataType::kBFloat16:
      return put(static_cast<uint16_t>(std::bit_cast<uint32_t>(static_cast<float>(value)) >> 16),
                 at);
    case DataType::kInt32: return put(static_cast<int32_t>(value), at);
    case DataType::kInt64: return put(value, at);
    case DataType::kUInt8: return put(static_cast<uint8_t>(value), at);
  }
}

double decode(DataType dtype, const std::byte* at) {
  switch (dtype) {
    case DataType::kFloat32: return get<float>(at);
    case DataType::kFloat64: return get<double>(at);
    case DataType::kFloat16: return half_value(get<uint16_t>(at));
    case DataType::kBFloat16:
      return std::bit_cast<float>(static_cast<uint32_t>(get<uint16_t>(at)) << 16);
    case DataType::kInt32: return get<int32_t>(at);
    case DataType::kInt64: return static_cast<double>(get<int64_t>(at));
    case DataType::kUInt8: return get<uint8_t>(at);
  }
  return 0;
}

// As the dtype's own arithmetic, which wraps, leaves it.
int64_t wrapped(DataType dtype, int64_t value) {
  if (dtype == DataType::kInt32) return static_cast<int32_t>(value);
  if (dtype == DataType::kUInt8) return static_cast<uint8_t>(value);
  return value;
}

// Significant bits of a float.
int precision(DataType dtype) {
  switch (dtype) {
    case DataType::kFloat64: return 53;
    case DataType::kFloat32: return 24;
    case DataType::kFloat16: return 11;
    default: return 8;
  }
}

}  // namespace

int64_t Values::contribution(int rank, int64_t index) const {
  const uint64_t hash = mix(seed ^ mix(static_cast<uint64_t>(index) * 1024 + rank));
  if (!is_float(dtype)) return wrapped(dtype, static_cast<int64_t>(hash));
  const auto within = [hash](int64_t most) {
    return static_cast<int64_t>(hash % static_cast<uint64_t>(2 * most + 1)) - most;
  };
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAvg: return within(std::clamp(200 / ranks, 1, 20));
    case ReduceOp::kMin:
    case ReduceOp::kMax: return within(200);
    case ReduceOp::kProduct: break;
  }
  const int64_t size = (index + rank) % 8 == 0 && rank < 80 ? 2 : 1;
  return hash % 2 == 0 ? size : -size;
}

void Values::fill(int rank, int64_t count, std::byte* at) const {
  const size_t element = size_of(dtype);
  for (int64_t i = 0; i < count; ++i) encode(dtype, contribution(rank, i), at + i * element);
}

std::string Values::check_reduced(const std::byte* result, int64_t count, int64_t first) const {
  const size_t element = size_of(dtype);
  std::byte exact[8];
  for (int64_t i = 0; i < count; ++i) {
    uint64_t value = static_cast<uint64_t>(contribution(0, first + i));  // unsigned: it may wrap
    double magnitude = std::fabs(static_cast<double>(contribution(0, first + i)));
    for (int rank = 1; rank < ranks; ++rank) {
      const int64_t next = contribution(rank, first + i);
      const auto so_far = static_cast<int64_t>(value);
      magnitude += std::fabs(static_cast<double>(next));
      switch (op) {
        case ReduceOp::kSum:
        case ReduceOp::kAvg: value += static_cast<uint64_t>(next); break;
        case ReduceOp::kProduct: value *= static_cast<uint64_t>(next); break;
        case ReduceOp::kMin: value = static_cast<uint64_t>(std::min(so_far, next)); break;
        case ReduceOp::kMax: value = static_cast<uint64_t>(std::max(so_far, next)); break;
      }
    }
    const int64_t reduced = wrapped(dtype, static_cast<int64_t>(value));
    const std::byte* at = result + i * element;
    if (op == ReduceOp::kAvg && is_float(dtype)) {
      const double average = static_cast<double>(reduced) / ranks;
      const bool is_exact = std::has_single_bit(static_cast<unsigned>(ranks));
      const double tolerance =
          is_exact ? 0 : magnitude / ranks * std::ldexp(2 + std::log2(ranks), -precision(dtype));
      if (!(std::fabs(decode(dtype, at) - average) <= tolerance)) {
        return fmt::format("element {}: {} instead of {}", i, decode(dtype, at), average);
      }
      continue;
    }
    encode(dtype, op == ReduceOp::kAvg ? reduced / ranks : reduced, exact);
    if (std::memcmp(exact, at, element) != 0) {
      return fmt::format("element {}: {} instead of {}", i, decode(dtype, at),
                         decode(dtype, exact));
    }
  }
  return "";
}

std::string Values::check_copied(int rank, const std::byte* result, int64_t count,
                                 int64_t first) const {
  const size_t element = size_of(dtype);
  std::byte exact[8];
  for (int64_t i = 0; i < count; ++i) {
    encode(dtype, contribution(rank, first + i), exact);
    if (std::memcmp(exact, result + i * element, element) != 0) {
      return fmt::format("element {} of rank {}'s: {} instead of {}", i, rank,
                         decode(dtype, result + i * element), decode(dtype, exact));
    }
  }
  return "";
}

}  // namespace ciuic::sim
