// SPDX-License-Identifier: Apache-2.0
// dtype.h: element types and reduction operations, and which of them go together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "ciuic/export.h"

namespace ciuic {

// The values stand on the wire and in plans' files; they are never renumbered.
enum class DataType : uint8_t {
  kFloat32 = 0,
  kFloat64 = 1,
  kFloat16 = 2,
  kBFloat16 = 3,
  kInt32 = 4,
  kInt64 = 5,
  kUInt8 = 6,
  kInt8 = 7,
  kInt16 = 8,
  kUInt16 = 9,
  kUInt32 = 10,
  kUInt64 = 11,
  kBool = 12,        // a byte; any other than 0 is true
  kComplex64 = 13,   // two float32: real, imaginary
  kComplex128 = 14,  // two float64
  kFloat8E4M3FN = 15,
  kFloat8E5M2 = 16,
};
inline constexpr int kDataTypes = 17;

// SUM is not divided by the number of ranks, AVG is. PRODUCT, MIN and MAX are element by element;
// MIN and MAX follow IEEE 754-2019 minimum and maximum: a NaN wins, -0 is less than +0. BAND, BOR
// and BXOR are of bits, and of truth values. docs/dtypes.md has the table of ops and dtypes.
//
// Integers are added and multiplied in their own dtype and wrap around, also before AVG divides
// them, which truncates toward zero: the AVG of uint8 200 and 200 is (400 mod 256) / 2 = 72. AVG of
// floats does not overflow where the average does not. Bool: SUM is "or", PRODUCT is "and".
enum class ReduceOp : uint8_t {
  kSum = 0,
  kAvg = 1,
  kMin = 2,
  kMax = 3,
  kProduct = 4,
  kBAnd = 5,
  kBOr = 6,
  kBXor = 7,
};
inline constexpr int kReduceOps = 8;

CIUIC_EXPORT size_t size_of(DataType dtype);       // bytes of one element
CIUIC_EXPORT const char* name_of(DataType dtype);  // "float32", "bfloat16", ...
CIUIC_EXPORT const char* name_of(ReduceOp op);     // "sum", "avg", ...
CIUIC_EXPORT std::optional<DataType> dtype_named(std::string_view name);
CIUIC_EXPORT std::optional<ReduceOp> reduce_op_named(std::string_view name);
CIUIC_EXPORT bool is_reducible(DataType dtype, ReduceOp op);  // the table operation x dtype

}  // namespace ciuic
