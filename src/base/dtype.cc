// SPDX-License-Identifier: Apache-2.0
// dtype.cc: the table of element types, and of the operations that are defined on them.

#include "ciuic/dtype.h"

namespace ciuic {

namespace {

// Which ops a dtype has, a bit each. A new dtype states here what it can do.
constexpr uint8_t kAllOps = (1 << kReduceOps) - 1;

struct DataTypeRow {
  DataType dtype;
  const char* name;
  uint8_t bytes;
  uint8_t ops;
};

constexpr DataTypeRow kDataTypeRows[] = {
    {DataType::kFloat32, "float32", 4, kAllOps}, {DataType::kFloat64, "float64", 8, kAllOps},
    {DataType::kFloat16, "float16", 2, kAllOps}, {DataType::kBFloat16, "bfloat16", 2, kAllOps},
    {DataType::kInt32, "int32", 4, kAllOps},     {DataType::kInt64, "int64", 8, kAllOps},
    {DataType::kUInt8, "uint8", 1, kAllOps},
};
static_assert(sizeof kDataTypeRows / sizeof *kDataTypeRows == kDataTypes);

constexpr const char* kReduceOpNames[] = {"sum", "avg", "min", "max", "product"};
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
