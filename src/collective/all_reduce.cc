// SPDX-License-Identifier: Apache-2.0
// all_reduce.cc: every rank gets the reduction of all ranks' input.

#include <fmt/format.h>

#include "collective/check.h"
#include "collective/operations.h"

namespace ciuic::collective {

Result<engine::Request> all_reduce(Chooser& chooser, const Arguments& arguments) {
  const ConstBuffer& input = arguments.input;
  const MutableBuffer& output = arguments.output;
  CIUIC_RETURN_IF_ERROR(check_buffer("all_reduce", "input", input));
  CIUIC_RETURN_IF_ERROR(check_buffer("all_reduce", "output", output));
  CIUIC_RETURN_IF_ERROR(check_pair("all_reduce", input, output));
  CIUIC_RETURN_IF_ERROR(check_op("all_reduce", input.dtype, arguments.op));
  if (input.count != output.count) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("all_reduce: input has {} elements and output {}; they must be alike",
                              input.count, output.count));
  }
  return request_for(chooser, arguments, input.count);
}

}  // namespace ciuic::collective
