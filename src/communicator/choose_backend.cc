// SPDX-License-Identifier: Apache-2.0
// choose_backend.cc: facts, and what follows from them.

#include "communicator/choose_backend.h"

#include <fmt/format.h>

#include <map>
#include <utility>
#include <vector>

#include "backend/nccl/nccl_settings.h"
#include "base/printable.h"
#include "drivers/cuda/cuda.h"
#include "drivers/nccl/nccl.h"

namespace ciuic {

Result<std::shared_ptr<backend::NcclProcess>> nccl_process(const Config& config) {
  std::vector<std::string> paths;
  if (!config.nccl_library.empty()) paths.push_back(config.nccl_library);
  return backend::NcclProcess::of(config.cuda_library, paths);
}

// As the others will read it.
static std::string reason_of(const Status& status) {
  return printable(status.message(), bootstrap::kMaxReason);
}

bootstrap::GpuFacts look_for_gpu(const CommunicatorOptions& options, const Config& config,
                                 size_t nccl_buffer_size, int* device) {
  bootstrap::GpuFacts facts;
  *device = -1;
  if (options.backend != "auto" && options.backend != "nccl") return facts;
  if (options.backend == "auto" && config.cuda_library.empty() && !cuda::is_loaded()) {
    facts.why_not = "the program had not loaded CUDA when it joined";
    return facts;
  }
  Result<const cuda::Library*> cuda = cuda::open_cuda(config.cuda_library);
  if (!cuda.ok()) {
    facts.why_not = reason_of(cuda.status());
    return facts;
  }
  const cuda::Functions& call = (*cuda)->functions;
  char bus_id[32] = {};
  *device = options.device;
  int code = *device >= 0 ? cuda::kSuccess : call.get_device(device);
  if (code == cuda::kSuccess) code = call.device_get_pci_bus_id(bus_id, sizeof bus_id, *device);
  if (code != cuda::kSuccess) {
    facts.why_not = reason_of(cuda::error_of(call, "cudaGetDevice", code));
    *device = -1;
    return facts;
  }
  facts.bus_id = bus_id;
  (void)backend::settle_nccl_settings(nccl_buffer_size);
  auto process = nccl_process(config);
  if (!process.ok()) {
    facts.why_not = reason_of(process.status());
  } else {
    facts.nccl_version = (*process)->nccl().version;
  }
  return facts;
}

// Why the group cannot use NCCL; empty where it can.
static std::string why_not_nccl(std::span<const bootstrap::Card> cards) {
  std::map<std::pair<std::string, std::string>, const bootstrap::Card*> users;
  for (const bootstrap::Card& card : cards) {
    const bootstrap::GpuFacts& gpu = card.gpu;
    if (gpu.bus_id.empty() || gpu.nccl_version == 0) {
      return fmt::format("{}: {}", card.who(), gpu.why_not);
    }
    if (gpu.nccl_version / 100 != cards[0].gpu.nccl_version / 100) {
      return fmt::format("{} has NCCL {}, and {} has {}", cards[0].who(),
                         nccl::version_text(cards[0].gpu.nccl_version), card.who(),
                         nccl::version_text(gpu.nccl_version));
    }
    const auto [user, is_first] = users.try_emplace({card.machine_id, gpu.bus_id}, &card);
    if (!is_first) {
      return fmt::format("{} and {} are both on GPU {}, and NCCL needs one for each",
                         user->second->who(), card.who(), gpu.bus_id);
    }
  }
  return "";
}

Result<ChosenBackend> choose_backend(const std::string& asked,
                                     std::span<const bootstrap::Card> cards) {
  if (asked != "auto" && asked != "nccl") {
    return ChosenBackend{.name = asked, .why = "it was asked for", .takes_others = true};
  }
  const std::string why_not = why_not_nccl(cards);
  if (asked == "nccl") {
    if (why_not.empty()) return ChosenBackend{"nccl", "it was asked for", false};
    return Status(StatusCode::kUnavailable,
                  fmt::format("backend \"nccl\" cannot be used: {}. Mend that, or take backend="
                              "\"auto\" or \"native\", which takes CUDA tensors by way of the host",
                              why_not));
  }
  if (why_not.empty()) {
    return ChosenBackend{"nccl",
                         "every rank has a GPU of its own, and NCCL; CPU tensors, and reductions "
                         "that NCCL lacks, go "
                         "by native",
                         true};
  }
  return ChosenBackend{"native", "no NCCL: " + why_not, true};
}

}  // namespace ciuic
