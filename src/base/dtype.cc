// SPDX-License-Identifier: Apache-2.0
// dtype.cc: the table of element types, and of the operations that are defined on them.

#include "ciuic/dtype.h"

#include <initializer_list>

namespace ciuic {

namespace {

// Which ops a dtype has, a bit each. A new dtype states here what it can do.
constexpr uint8_t set_of(std::initializer_list<ReduceOp> ops) {
  int set = 0;
  for (const ReduceOp op : ops) set |= 1 << static_cast<int>(op);
  return static_cast<uint8_t>(set);
}

constexpr uint8_t kArithmetic = set_of({ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kProduct});
constexpr uint8_t kOrder = set_of({ReduceOp::kMin, ReduceOp::kMax});
constexpr uint8_t kBits = set_of({ReduceOp::kBAnd, ReduceOp::kBOr, ReduceOp::kBXor});

constexpr uint8_t kFloatOps = kArithmetic | kOrder;
constexpr uint8_t kIntegerOps = kArithmetic | kOrder | kBits;
constexpr uint8_t kComplexOps = kArithmetic;  // they have no order
constexpr uint8_t kBoolOps =
    set_of({ReduceOp::kSum, ReduceOp::kProduct}) | kOrder | kBits;  // an average is no truth value

struct DataTypeRow {
  DataType dtype;
  const char* name;
  uint8_t bytes;
  uint8_t ops;
};

constexpr DataTypeRow kDataTypeRows[] = {
    {DataType::kFloat32, "float32", 4, kFloatOps},
    {DataType::kFloat64, "float64", 8, kFloatOps},
    {DataType::kFloat16, "float16", 2, kFloatOps},
    {DataType::kBFloat16, "bfloat16", 2, kFloatOps},
    {DataType::kInt32, "int32", 4, kIntegerOps},
    {DataType::kInt64, "int64", 8, kIntegerOps},
    {DataType::kUInt8, "uint8", 1, kIntegerOps},
    {DataType::kInt8, "int8", 1, kIntegerOps},
    {DataType::kInt16, "int16", 2, kIntegerOps},
    {DataType::kUInt16, "uint16", 2, kIntegerOps},
    {DataType::kUInt32, "uint32", 4, kIntegerOps},
    {DataType::kUInt64, "uint64", 8, kIntegerOps},
    {DataType::kBool, "bool", 1, kBoolOps},
    {DataType::kComplex64, "complex64", 8, kComplexOps},
    {DataType::kComplex128, "complex128", 16, kComplexOps},
    {DataType::kFloat8E4M3FN, "float8_e4m3fn", 1, kFloatOps},
    {DataType::kFloat8E5M2, "float8_e5m2", 1, kFloatOps},
};
static_assert(sizeof kDataTypeRows / sizeof *kDataTypeRows == kDataTypes);

constexpr const char* kReduceOpNames[] = {"sum",     "avg",  "min", "max",
                                          "product", "band", "bor", "bxor"};
static_assert(sizeof kReduceOpNames / sizeof *kReduceOpNames == kReduceOps);

// Null for a value that came from outside and is none of ours.
constexpr const DataTypeRow* row_of(DataType dtype) {
  const int index = static_cast<int>(dtype);
  return index < kDataTypes ? &kDataTypeRows[index] : nullptr;
}

constexpr bool rows_are_in_order() {
  for (int i = 0; i < kDataTypes; ++i) {
    if (static_cast<int>(kDataTypeRows[i].dtype) != i) return false;
  }
  return true;
}
static_assert(rows_are_in_order());

}  // namespace

size_t size_of(DataType dtype) {
  const DataTypeRow* row = row_of(dtype);
  return row != nullptr ? row->bytes : 0;
}

const char* name_of(DataType dtype) {
  const DataTypeRow* row = row_of(dtype);
  return row != nullptr ? row->name : "unknown";
}

const char* name_of(ReduceOp op) {
  const int index = static_cast<int>(op);
  return index < kReduceOps ? kReduceOpNames[index] : "unknown";
}

std::optional<DataType> dtype_named(std::string_view name) {
  for (const DataTypeRow& row : kDataTypeRows) {
    if (name == row.name) return row.dtype;
  }
  return std::nullopt;
}

std::optional<ReduceOp> reduce_op_named(std::string_view name) {
  for (int i = 0; i < kReduceOps; ++i) {
    if (name == kReduceOpNames[i]) return static_cast<ReduceOp>(i);
  }
  return std::nullopt;
}

bool is_reducible(DataType dtype, ReduceOp op) {
  const DataTypeRow* row = row_of(dtype);
  const int index = static_cast<int>(op);
  return row != nullptr && index < kReduceOps && (row->ops >> index & 1) != 0;
}

}  // namespace ciuic
