// SPDX-License-Identifier: Apache-2.0
// reduce.cc: reduction by SIMD: which file does which dtype.

#include "kernels/reduce.h"

#include "base/assert.h"
#include "kernels/families.h"

namespace ciuic::kernels {

void reduce(const Reduction& reduction, std::span<const Operand> operands, bool final,
            std::byte* target, int64_t count) {
  CIUIC_ASSERT(!operands.empty() && count >= 0 && reduction.ranks >= 1);
  const Call call = {reduction, operands, final, target, static_cast<size_t>(count)};
  switch (reduction.dtype) {
    case DataType::kFloat32:
    case DataType::kFloat64:
    case DataType::kComplex64:
    case DataType::kComplex128: return reduce_floats(call);
    case DataType::kFloat16:
    case DataType::kBFloat16:
    case DataType::kFloat8E4M3FN:
    case DataType::kFloat8E5M2: return reduce_small_floats(call);
    case DataType::kInt8:
    case DataType::kInt16:
    case DataType::kInt32:
    case DataType::kInt64:
    case DataType::kUInt8:
    case DataType::kUInt16:
    case DataType::kUInt32:
    case DataType::kUInt64:
    case DataType::kBool: return reduce_integers(call);
  }
  CIUIC_ASSERT(false);
}

void reduce_by_reference(const Call& call) {
  reduce_scalar(call.reduction, call.operands, call.final, call.target,
                static_cast<int64_t>(call.count));
}

}  // namespace ciuic::kernels
