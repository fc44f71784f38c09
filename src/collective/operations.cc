// SPDX-License-Identifier: Apache-2.0
// operations.cc: the list of operations.

#include "collective/operations.h"

namespace ciuic::collective {

Result<engine::Request> prepare(Chooser& chooser, const Arguments& arguments) {
  switch (arguments.operation) {
    case plan::Operation::kAllReduce: return all_reduce(chooser, arguments);
    case plan::Operation::kReduce: return reduce(chooser, arguments);
    case plan::Operation::kBroadcast: return broadcast(chooser, arguments);
    case plan::Operation::kAllGather: return all_gather(chooser, arguments);
    case plan::Operation::kBarrier: return barrier(chooser, arguments);
    case plan::Operation::kReduceScatter:
    case plan::Operation::kAllToAll:
    case plan::Operation::kGather:
    case plan::Operation::kScatter: break;
  }
  return Status(StatusCode::kUnsupported, "no such operation");
}

}  // namespace ciuic::collective
