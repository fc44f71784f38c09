// SPDX-License-Identifier: Apache-2.0
// reduce.cc: one rank gets the reduction of all ranks' input.

#include <fmt/format.h>

#include "collective/check.h"
#include "collective/operations.h"

namespace ciuic::collective {

Result<engine::Request> reduce(Chooser& chooser, const Arguments& arguments) {
  const ConstBuffer& input = arguments.input;
  CIUIC_RETURN_IF_ERROR(check_buffer("reduce", "input", input));
  CIUIC_RETURN_IF_ERROR(check_root("reduce", arguments.root, chooser.size()));
  CIUIC_RETURN_IF_ERROR(check_op("reduce", input.dtype, arguments.op));
  if (chooser.rank() == arguments.root) {
    const MutableBuffer& output = arguments.output;
    CIUIC_RETURN_IF_ERROR(check_buffer("reduce", "output", output));
    CIUIC_RETURN_IF_ERROR(check_pair("reduce", input, output));
    if (input.count != output.count) {
      return Status(
          StatusCode::kInvalidArgument,
          fmt::format("reduce: input has {} elements and output {}; they must be alike on "
                      "the root",
                      input.count, output.count));
    }
  }
  return request_for(chooser, arguments, input.count);
}

}  // namespace ciuic::collective
