// SPDX-License-Identifier: Apache-2.0
// values.cc: one dtype after another.

#include "values.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/float8.h"
#include "kernels/half.h"

namespace ciuic::nccl_test {

namespace {

template <typename T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

template <typename T>
void store(std::byte* to, T value) {
  std::memcpy(to, &value, sizeof value);
}

// Calls `visit` with a value of the C++ type that stands for the dtype's parts.
template <typename Visit>
void with_type(DataType dtype, const Visit& visit) {
  switch (dtype) {
    case DataType::kFloat64:
    case DataType::kComplex128: return visit(double{});
    case DataType::kInt8: return visit(int8_t{});
    case DataType::kInt16: return visit(int16_t{});
    case DataType::kInt32: return visit(int32_t{});
    case DataType::kInt64: return visit(int64_t{});
    case DataType::kUInt8:
    case DataType::kBool: return visit(uint8_t{});
    case DataType::kUInt16: return visit(uint16_t{});
    case DataType::kUInt32: return visit(uint32_t{});
    case DataType::kUInt64: return visit(uint64_t{});
    default: return visit(float{});
  }
}

double decode_one(DataType dtype, const std::byte* from) {
  switch (dtype) {
    case DataType::kFloat16: return kernels::half_to_float(load<uint16_t>(from));
    case DataType::kBFloat16: return kernels::bfloat16_to_float(load<uint16_t>(from));
    case DataType::kFloat8E4M3FN:
      return kernels::float8_to_float<kernels::E4M3FN>(load<uint8_t>(from));
    case DataType::kFloat8E5M2: return kernels::float8_to_float<kernels::E5M2>(load<uint8_t>(from));
    default: break;
  }
  double value = 0;
  with_type(dtype, [&](auto type) { value = static_cast<double>(load<decltype(type)>(from)); });
  return value;
}

void encode_one(DataType dtype, double value, std::byte* to) {
  const auto small = static_cast<float>(value);
  switch (dtype) {
    case DataType::kFloat16: return store(to, kernels::float_to_half(small));
    case DataType::kBFloat16: return store(to, kernels::float_to_bfloat16(small));
    case DataType::kFloat8E4M3FN:
      return store(to, kernels::float_to_float8<kernels::E4M3FN>(small));
    case DataType::kFloat8E5M2: return store(to, kernels::float_to_float8<kernels::E5M2>(small));
    default: break;
  }
  with_type(dtype, [&](auto type) { store(to, static_cast<decltype(type)>(value)); });
}

bool is_whole(DataType dtype) { return DataType::kInt32 <= dtype && dtype <= DataType::kBool; }

bool is_unsigned(DataType dtype) {
  return dtype == DataType::kUInt8 || dtype == DataType::kUInt16 || dtype == DataType::kUInt32 ||
         dtype == DataType::kUInt64;
}

double reduce_one(const std::vector<double>& values, DataType dtype, ReduceOp op) {
  double result = values[0];
  for (size_t i = 1; i < values.size(); ++i) {
    switch (op) {
      case ReduceOp::kMin:
      case ReduceOp::kBAnd: result = std::min(result, values[i]); break;
      case ReduceOp::kMax:
      case ReduceOp::kBOr: result = std::max(result, values[i]); break;
      case ReduceOp::kProduct: result *= values[i]; break;
      default: result += values[i]; break;
    }
  }
  if (dtype == DataType::kBool && op == ReduceOp::kSum) return std::min(result, 1.0);
  if (op != ReduceOp::kAvg) return result;
  result /= static_cast<double>(values.size());
  return is_whole(dtype) ? std::trunc(result) : result;
}

}  // namespace

size_t parts_of(DataType dtype) {
  return dtype == DataType::kComplex64 || dtype == DataType::kComplex128 ? 2 : 1;
}

std::vector<double> decode(DataType dtype, const Bytes& bytes) {
  const size_t step = size_of(dtype) / parts_of(dtype);
  std::vector<double> values(bytes.size() / step);
  for (size_t i = 0; i < values.size(); ++i) values[i] = decode_one(dtype, &bytes[i * step]);
  return values;
}

Bytes encode(DataType dtype, const std::vector<double>& values) {
  const size_t step = size_of(dtype) / parts_of(dtype);
  Bytes bytes(values.size() * step);
  for (size_t i = 0; i < values.size(); ++i) encode_one(dtype, values[i], &bytes[i * step]);
  return bytes;
}

std::vector<double> input_of(int rank, int64_t count, DataType dtype) {
  std::vector<double> values(static_cast<size_t>(count) * parts_of(dtype));
  for (size_t i = 0; i < values.size(); ++i) {
    const size_t mixed = i * 7 + static_cast<size_t>(rank) * 3;
    values[i] = dtype == DataType::kBool
                    ? static_cast<double>(mixed % 2)
                    : static_cast<double>(mixed % 4) - (is_unsigned(dtype) ? 0.0 : 1.0);
  }
  return values;
}

std::vector<double> reduced(const std::vector<std::vector<double>>& inputs, DataType dtype,
                            ReduceOp op) {
  std::vector<double> result(inputs[0].size());
  std::vector<double> values(inputs.size());
  for (size_t i = 0; i < result.size(); ++i) {
    for (size_t rank = 0; rank < inputs.size(); ++rank) values[rank] = inputs[rank][i];
    result[i] = reduce_one(values, dtype, op);
  }
  return result;
}

double tolerance(DataType dtype, ReduceOp op) {
  if (op != ReduceOp::kAvg || is_whole(dtype)) return 0;
  switch (dtype) {
    case DataType::kFloat64:
    case DataType::kComplex128: return 1e-14;
    case DataType::kFloat16: return 4e-3;
    case DataType::kBFloat16: return 3e-2;
    case DataType::kFloat8E4M3FN: return 0.2;
    case DataType::kFloat8E5M2: return 0.4;
    default: return 1e-6;
  }
}

}  // namespace ciuic::nccl_test
