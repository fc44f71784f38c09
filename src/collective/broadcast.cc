// SPDX-License-Identifier: Apache-2.0
// broadcast.cc: every rank gets what the root has.

#include "collective/check.h"
#include "collective/operations.h"

namespace ciuic::collective {

Result<engine::Request> broadcast(Chooser& chooser, const Arguments& arguments) {
  CIUIC_RETURN_IF_ERROR(check_buffer("broadcast", "buffer", arguments.output));
  CIUIC_RETURN_IF_ERROR(check_root("broadcast", arguments.root, chooser.size()));
  Arguments in_place = arguments;
  in_place.input = arguments.output;
  return request_for(chooser, in_place, arguments.output.count);
}

}  // namespace ciuic::collective
