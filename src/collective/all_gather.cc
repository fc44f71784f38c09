// SPDX-License-Identifier: Apache-2.0
// all_gather.cc: every rank gets all ranks' inputs, in rank order.

#include <fmt/format.h>

#include "collective/check.h"
#include "collective/operations.h"

namespace ciuic::collective {

Result<engine::Request> all_gather(Chooser& chooser, const Arguments& arguments) {
  const ConstBuffer& input = arguments.input;
  const MutableBuffer& output = arguments.output;
  CIUIC_RETURN_IF_ERROR(check_buffer("all_gather", "input", input));
  CIUIC_RETURN_IF_ERROR(check_buffer("all_gather", "output", output));
  if (output.count != input.count * chooser.size()) {
    return Status(
        StatusCode::kInvalidArgument,
        fmt::format("all_gather: output has {} elements; {} ranks of {} need {}", output.count,
                    chooser.size(), input.count, input.count * chooser.size()));
  }
  // In place is this rank's own part of the output; any other overlap is a mistake.
  ConstBuffer part = output;
  const size_t offset = static_cast<size_t>(chooser.rank()) * input.bytes();
  part.data = static_cast<const std::byte*>(output.data) + offset;
  if (input.data != part.data || input.dtype != output.dtype) {
    CIUIC_RETURN_IF_ERROR(check_pair("all_gather", input, output));
    if (input.data == output.data && input.count > 0 && chooser.rank() > 0) {
      return Status(StatusCode::kInvalidArgument,
                    "all_gather: input is the start of output, which is rank 0's part; in place it "
                    "must be this rank's part");
    }
  }
  return request_for(chooser, arguments, input.count);
}

}  // namespace ciuic::collective
