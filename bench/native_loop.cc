// SPDX-License-Identifier: Apache-2.0
// native_loop.cc: timing, and the pattern by which results are checked.

#include "bench/native_loop.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "base/clock.h"
#include "kernels/half.h"

namespace ciuic::bench {

namespace {

// The pattern repeats, so that its expected result is reckoned for one period only.
constexpr int64_t kPeriod = 70;

int64_t pattern(int64_t index, ReduceOp op, int rank, int size) {
  if (op == ReduceOp::kProduct) return 1 + (index + rank) % 2;
  const int64_t small = (index * 3 + rank) % 7;
  return op == ReduceOp::kAvg ? small * size : small;  // so that the average is a whole number
}

int64_t expected(int64_t index, DataType dtype, ReduceOp op, int size) {
  int64_t result = pattern(index, op, 0, size);
  for (int rank = 1; rank < size; ++rank) {
    const int64_t next = pattern(index, op, rank, size);
    switch (op) {
      case ReduceOp::kSum:
      case ReduceOp::kAvg: result += next; break;
      case ReduceOp::kMin: result = std::min(result, next); break;
      case ReduceOp::kMax: result = std::max(result, next); break;
      // Wraps as the integers do.
      case ReduceOp::kProduct:
        result = static_cast<int64_t>(static_cast<uint64_t>(result) * static_cast<uint64_t>(next));
        break;
    }
  }
  if (op != ReduceOp::kAvg) return result;
  if (dtype == DataType::kUInt8) result %= 256;  // the sum wraps before it is divided
  return result / size;
}

// How a whole number lies in memory, and what number does.
template <typename T>
struct Plain {
  using Stored = T;
  static T store(int64_t number) { return static_cast<T>(number); }
  static double load(T stored) { return static_cast<double>(stored); }
  static constexpr bool kFloat = std::is_floating_point_v<T>;
  static constexpr double kTolerance = 0x1p-20;
};

struct Float16 {
  using Stored = uint16_t;
  static uint16_t store(int64_t number) {
    return kernels::float_to_half(static_cast<float>(number));
  }
  static double load(uint16_t stored) { return kernels::half_to_float(stored); }
  static constexpr bool kFloat = true;
  static constexpr double kTolerance = 0x1p-9;
};

struct BFloat16 {
  using Stored = uint16_t;
  static uint16_t store(int64_t number) {
    return kernels::float_to_bfloat16(static_cast<float>(number));
  }
  static double load(uint16_t stored) { return kernels::bfloat16_to_float(stored); }
  static constexpr bool kFloat = true;
  static constexpr double kTolerance = 0x1p-6;
};

template <class Function>
auto with_format(DataType dtype, Function function) {
  switch (dtype) {
    case DataType::kFloat32: return function(Plain<float>{});
    case DataType::kFloat64: return function(Plain<double>{});
    case DataType::kFloat16: return function(Float16{});
    case DataType::kBFloat16: return function(BFloat16{});
    case DataType::kInt32: return function(Plain<int32_t>{});
    case DataType::kInt64: return function(Plain<int64_t>{});
    case DataType::kUInt8: return function(Plain<uint8_t>{});
  }
  return function(Plain<float>{});
}

}  // namespace

Status time_all_reduce(Communicator& communicator, MutableBuffer buffer, ReduceOp op, int warm_up,
                       std::span<int64_t> nanoseconds) {
  OperationOptions options;
  options.wait_follows = true;
  const auto call = [&]() -> Status {
    Result<Work> work = communicator.all_reduce(buffer, buffer, op, options);
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
    for (int64_t i = 0; i < kPeriod; ++i) period[i] = Format::store(pattern(i, op, rank, size));
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
    const bool rounded =
        Format::kFloat && op == ReduceOp::kAvg && !std::has_single_bit(static_cast<unsigned>(size));
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
