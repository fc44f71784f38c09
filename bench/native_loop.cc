// SPDX-License-Identifier: Apache-2.0
// native_loop.cc: timing, and the pattern by which results are checked.

#include "bench/native_loop.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "base/clock.h"
#include "kernels/float8.h"
#include "kernels/half.h"

namespace ciuic::bench {

namespace {

// The pattern repeats, so that its expected result is reckoned for one period only.
constexpr int64_t kPeriod = 70;

int64_t pattern(int64_t index, DataType dtype, ReduceOp op, int rank, int size) {
  const int64_t small = (index * 3 + rank) % 7;
  if (dtype == DataType::kBool) return small & 1;
  if (op == ReduceOp::kProduct) return 1 + (index + rank) % 2;
  return op == ReduceOp::kAvg ? small * size : small;  // so that the average is a whole number
}

int64_t combined(DataType dtype, ReduceOp op, int64_t a, int64_t b) {
  const bool is_bool = dtype == DataType::kBool;
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAvg: return is_bool ? a | b : a + b;
    case ReduceOp::kMin: return std::min(a, b);
    case ReduceOp::kMax: return std::max(a, b);
    // Wraps as the integers do.
    case ReduceOp::kProduct:
      return static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
    case ReduceOp::kBAnd: return a & b;
    case ReduceOp::kBOr: return a | b;
    case ReduceOp::kBXor: return a ^ b;
  }
  return a;
}

int64_t expected(int64_t index, DataType dtype, ReduceOp op, int size) {
  int64_t result = pattern(index, dtype, op, 0, size);
  for (int rank = 1; rank < size; ++rank) {
    result = combined(dtype, op, result, pattern(index, dtype, op, rank, size));
  }
  if (op != ReduceOp::kAvg) return result;
  // The sum wraps before it is divided.
  if (dtype == DataType::kUInt8) result = static_cast<uint8_t>(result);
  if (dtype == DataType::kInt8) result = static_cast<int8_t>(result);
  if (dtype == DataType::kInt16) result = static_cast<int16_t>(result);
  if (dtype == DataType::kUInt16) result = static_cast<uint16_t>(result);
  return result / size;
}

// How a whole number lies in memory, and what number does.
template <typename T>
struct Plain {
  using Stored = T;
  static T store(int64_t number) { return static_cast<T>(number); }
  static double load(T stored) { return static_cast<double>(stored); }
  static constexpr bool kFloat = std::is_floating_point_v<T>;
  static constexpr bool kInexact = false;
  static constexpr double kTolerance = 0x1p-20;
};

// `kInexact`: a sum may be no number of the format.
template <typename T, float (*to_float)(T), T (*from_float)(float), int tolerance_bits>
struct Small {
  using Stored = T;
  static T store(int64_t number) { return from_float(static_cast<float>(number)); }
  static double load(T stored) { return to_float(stored); }
  static constexpr bool kFloat = true;
  static constexpr bool kInexact = sizeof(T) == 1;
  static constexpr double kTolerance = 1.0 / (1 << tolerance_bits);
};

using Float16 = Small<uint16_t, kernels::half_to_float, kernels::float_to_half, 9>;
using BFloat16 = Small<uint16_t, kernels::bfloat16_to_float, kernels::float_to_bfloat16, 6>;
template <class Shape>
using Float8 = Small<uint8_t, kernels::float8_to_float<Shape>, kernels::float_to_float8<Shape>,
                     Shape::kMantissaBits - 1>;

template <typename T>
struct Complex {
  struct Stored {
    T real;
    T imaginary;
  };
  static Stored store(int64_t number) { return {static_cast<T>(number), 0}; }
  static double load(Stored stored) { return std::hypot(stored.real, stored.imaginary); }
  static constexpr bool kFloat = true;
  static constexpr bool kInexact = false;
  static constexpr double kTolerance = 0x1p-20;
};

template <class Function>
auto with_format(DataType dtype, Function function) {
  switch (dtype) {
    case DataType::kFloat32: return function(Plain<float>{});
    case DataType::kFloat64: return function(Plain<double>{});
    case DataType::kFloat16: return function(Float16{});
    case DataType::kBFloat16: return function(BFloat16{});
    case DataType::kFloat8E4M3FN: return function(Float8<kernels::E4M3FN>{});
    case DataType::kFloat8E5M2: return function(Float8<kernels::E5M2>{});
    case DataType::kComplex64: return function(Complex<float>{});
    case DataType::kComplex128: return function(Complex<double>{});
    case DataType::kInt16:
    case DataType::kUInt16: return function(Plain<uint16_t>{});
    case DataType::kInt32:
    case DataType::kUInt32: return function(Plain<uint32_t>{});
    case DataType::kInt64:
    case DataType::kUInt64: return function(Plain<uint64_t>{});
    default: break;
  }
  return function(Plain<uint8_t>{});  // and int8, bool: a byte
}

}  // namespace

Status time_all_reduce(Communicator& communicator, MutableBuffer buffer, ReduceOp op,
                       const std::string& algorithm, int warm_up, std::span<int64_t> nanoseconds) {
  OperationOptions options;
  options.wait_follows = true;
  Call named = Call::all_reduce(buffer, buffer, op);
  named.algorithm = algorithm;
  const auto call = [&]() -> Status {
    Result<Work> work = algorithm.empty() ? communicator.all_reduce(buffer, buffer, op, options)
                                          : communicator.submit(named, options);
    return work.ok() ? work->wait() : work.status();
  };
  for (int i = 0; i < warm_up; ++i) CIUIC_RETURN_IF_ERROR(call());
  TimeNs last = now_ns();
  for (int64_t& duration : nanoseconds) {
    CIUIC_RETURN_IF_ERROR(call());
    const TimeNs now = now_ns();
    duration = now - last;
    last = now;
  }
  return {};
}

void fill_pattern(MutableBuffer buffer, ReduceOp op, int rank, int size) {
  with_format(buffer.dtype, [&]<class Format>(Format) {
    typename Format::Stored period[kPeriod];
    for (int64_t i = 0; i < kPeriod; ++i)
      period[i] = Format::store(pattern(i, buffer.dtype, op, rank, size));
    auto* to = static_cast<std::byte*>(buffer.data);
    for (size_t left = buffer.bytes(); left > 0;) {
      const size_t bytes = std::min(left, sizeof period);
      std::memcpy(to, period, bytes);
      to += bytes;
      left -= bytes;
    }
  });
}

int64_t first_difference(ConstBuffer buffer, ReduceOp op, int size) {
  return with_format(buffer.dtype, [&]<class Format>(Format) -> int64_t {
    using Stored = typename Format::Stored;
    Stored period[kPeriod];
    for (int64_t i = 0; i < kPeriod; ++i) {
      period[i] = Format::store(expected(i, buffer.dtype, op, size));
    }
    const bool divided =
        Format::kFloat && op == ReduceOp::kAvg && !std::has_single_bit(static_cast<unsigned>(size));
    const bool rounded = Format::kInexact || divided;
    const auto* from = static_cast<const std::byte*>(buffer.data);
    for (int64_t i = 0; i < buffer.count; ++i) {
      Stored got;
      std::memcpy(&got, from + static_cast<size_t>(i) * sizeof got, sizeof got);
      const Stored& wanted = period[i % kPeriod];
      if (std::memcmp(&got, &wanted, sizeof got) == 0) continue;
      const double error = std::fabs(Format::load(got) - Format::load(wanted));
      const double allowed = rounded ? Format::kTolerance * (1 + Format::load(wanted)) : 0;
      if (!(error <= allowed)) return i;
    }
    return -1;
  });
}

}  // namespace ciuic::bench
