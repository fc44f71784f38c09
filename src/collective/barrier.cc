// SPDX-License-Identifier: Apache-2.0
// barrier.cc: ends when all ranks have called it.

#include "collective/check.h"
#include "collective/operations.h"

namespace ciuic::collective {

Result<engine::Request> barrier(Chooser& chooser, const Arguments& arguments) {
  return request_for(chooser, arguments, 0);
}

}  // namespace ciuic::collective
