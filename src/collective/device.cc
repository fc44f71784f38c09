// SPDX-License-Identifier: Apache-2.0
// device.cc: finds it.

#include "collective/device.h"

#include <fmt/format.h>

#include <string>

#include "collective/prepare.h"
#include "plan/registry.h"

namespace ciuic::collective {

static std::string name_of_device(const Device& device) {
  return device.kind == DeviceKind::kCpu ? "the CPU" : fmt::format("cuda:{}", device.index);
}

Result<Device> device_of(std::span<const Call> calls, int rank) {
  Device device;
  bool is_known = false;
  for (const Call& call : calls) {
    const bool receives =
        call.operation == Operation::kRecv || call.operation == Operation::kBroadcast;
    const bool is_root = rank == call.root || !plan::has_root(call.operation);
    const bool has_input = !receives && (is_root || call.operation != Operation::kScatter);
    const bool has_output =
        call.operation != Operation::kSend &&
        (is_root || (call.operation != Operation::kReduce && call.operation != Operation::kGather));
    for (const auto& [matters, found] :
         {std::pair(has_input, call.input.device), std::pair(has_output, call.output.device)}) {
      if (!matters || call.operation == Operation::kBarrier) continue;
      if (is_known && !(found == device)) {
        return Status(StatusCode::kInvalidArgument,
                      fmt::format("{}: tensors on {} and on {}; all of one call, or of calls that "
                                  "are made together, must be on one device. Nothing was sent.",
                                  name_of(call), name_of_device(device), name_of_device(found)));
      }
      device = found;
      is_known = true;
    }
  }
  return device;
}

Call on_cpu(Call call) {
  call.input.device = call.output.device = {};
  return call;
}

}  // namespace ciuic::collective
