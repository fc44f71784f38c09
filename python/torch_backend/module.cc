// SPDX-License-Identifier: Apache-2.0
// module.cc: what Python sees of the backend: operators in torch.ops.ciuic, so that the library is
// bound to one version of torch, but to none of Python.

#include <torch/library.h>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "ciuic/version.h"
#include "group.h"

namespace ciuic::torch_backend {
namespace {

// The version of torch whose classes this was compiled against; CMake bakes it in.
std::string built_for() { return CIUIC_TORCH_VERSION; }

int64_t built_for_abi() { return CIUIC_ABI; }
int64_t loaded_abi() { return abi(); }

// Joins a group, with the store of `group`, and makes it the backend of it: neither a Store nor a
// Backend can be handed to an operator, but a ProcessGroup can. `carrier`, `device`: the backend of
// the core, and this rank's GPU, as CommunicatorOptions has them.
void join(const c10::intrusive_ptr<c10d::ProcessGroup>& group, int64_t timeout_ms,
          const std::string& name, const std::vector<int64_t>& global_ranks,
          const std::string& carrier, int64_t device) {
  auto options = c10::make_intrusive<TorchGroup::Options>();
  options->timeout = std::chrono::milliseconds(timeout_ms);
  options->group_name = name;
  options->global_ranks_in_group.assign(global_ranks.begin(), global_ranks.end());
  options->carrier = carrier;
  options->device = static_cast<int>(device);
  group->setBackend(
      c10::DeviceType::CPU, c10d::ProcessGroup::BackendType::CUSTOM,
      TorchGroup::join(group->getStore(), group->getRank(), group->getSize(), std::move(options)));
}

}  // namespace

TORCH_LIBRARY(ciuic, library) {
  library.def("built_for() -> str", &built_for);
  library.def("built_for_abi() -> int", &built_for_abi);
  library.def("loaded_abi() -> int", &loaded_abi);
  library.def("close_all() -> ()", &TorchGroup::close_all);
  library.def(
      "join(__torch__.torch.classes.c10d.ProcessGroup group, int timeout_ms, str name, "
      "int[] global_ranks, str carrier, int device) -> ()",
      &join);
}

}  // namespace ciuic::torch_backend
