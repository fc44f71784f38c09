// SPDX-License-Identifier: Apache-2.0
// reduce.h: element-wise reduction of several operands into one target, one read of each.
//
// Floats of 16 and 8 bits are added, multiplied and compared in float32 from the first operand to
// the last, and rounded once, to nearest even; what is too large for float8_e4m3fn becomes NaN, for
// the others infinity. NaN results are canonical. Integers wrap. Bool: see ciuic/dtype.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "ciuic/dtype.h"

namespace ciuic::kernels {

struct Reduction {
  DataType dtype = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  int ranks = 1;  // the divisor of kAvg
};

// AVG: a raw operand is scaled as it is read (floats of 16 and 8 bits by 1/ranks in float32,
// float32 and float64 by 2^-k with k = ceil(log2 ranks), integers not), a final result by what is
// left (float32 and float64 by 2^k/ranks; integers are divided, truncating toward zero). Complex
// numbers are averaged as their parts are.
struct Operand {
  const std::byte* data = nullptr;
  bool raw = false;
};

// target[i] = operands[0][i] op operands[1][i] op ..., left to right. One operand is a (scaled)
// copy. `target` may be one of the operands' memory, else none of them overlaps it. No alignment is
// asked for; dtype and op go together. All ranks get the same bits from the same operands, whatever
// their processors' SIMD.
void reduce(const Reduction& reduction, std::span<const Operand> operands, bool final,
            std::byte* target, int64_t count);

// The same, element by element in plain C++: what the SIMD code is tested against.
void reduce_scalar(const Reduction& reduction, std::span<const Operand> operands, bool final,
                   std::byte* target, int64_t count);

// The instruction set in use, such as "AVX2", for `ciuic info`.
const char* simd_target();

}  // namespace ciuic::kernels
