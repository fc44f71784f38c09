// SPDX-License-Identifier: Apache-2.0
// dtype_text.cc: both ways out of a pair that does not exist: another op, another dtype.

#include "base/dtype_text.h"

#include <fmt/format.h>

namespace ciuic {

std::string undefined_pair(DataType dtype, ReduceOp op) {
  std::string ops;
  for (int i = 0; i < kReduceOps; ++i) {
    const auto other = static_cast<ReduceOp>(i);
    if (!is_reducible(dtype, other)) continue;
    ops += ops.empty() ? "" : ", ";
    ops += name_of(other);
  }
  std::string dtypes;
  for (int i = 0; i < kDataTypes; ++i) {
    const auto other = static_cast<DataType>(i);
    if (!is_reducible(other, op)) continue;
    dtypes += dtypes.empty() ? "" : ", ";
    dtypes += name_of(other);
  }
  return fmt::format("{} is not defined for {}, which has {}; {} is defined for {}", name_of(op),
                     name_of(dtype), ops.empty() ? "no op" : ops, name_of(op),
                     dtypes.empty() ? "no dtype" : dtypes);
}

}  // namespace ciuic
