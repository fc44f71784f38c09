// SPDX-License-Identifier: Apache-2.0
// families.h: the parts of reduce(): a file for dtypes that are computed alike, compiled once for
// each instruction set that Highway knows for the architecture.
#pragma once

// Before every <hwy/foreach_target.h>, so that all files agree. Scalable vectors cannot be members
// of a struct, as they are here; NEON serves those processors. Those with SSSE3 and no SSE4 are too
// old to be worth their share of the time to compile.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_SSSE3)

// Where Highway has no vectors, or only imitates them, the reference runs.
#define CIUIC_BY_REFERENCE (HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128)

#include <cstddef>
#include <span>

#include "kernels/reduce.h"

namespace ciuic::kernels {

// One call's arguments, the same for every format: of elements [first, first + count).
struct Call {
  Reduction reduction;
  std::span<const Operand> operands;
  bool final;
  std::byte* target;
  size_t count;
  size_t first = 0;
};

void reduce_floats(const Call& call);        // float32, float64, complex64, complex128
void reduce_small_floats(const Call& call);  // float16, bfloat16, float8_e4m3fn, float8_e5m2
void reduce_integers(const Call& call);      // and bool

void reduce_by_reference(const Call& call);  // whole calls only, first == 0

}  // namespace ciuic::kernels
