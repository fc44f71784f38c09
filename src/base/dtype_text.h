// SPDX-License-Identifier: Apache-2.0
// dtype_text.h: what is said where an op is not defined on a dtype.
#pragma once

#include <string>

#include "ciuic/dtype.h"

namespace ciuic {

// "avg is not defined for bool, which has sum, min, ...; avg is defined for float32, ...".
std::string undefined_pair(DataType dtype, ReduceOp op);

}  // namespace ciuic
