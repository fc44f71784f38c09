// SPDX-License-Identifier: Apache-2.0
// choose_backend.h: which backend a group gets, decided alike on all ranks from their cards.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "backend/nccl/nccl_process.h"
#include "base/config.h"
#include "bootstrap/card.h"
#include "ciuic/options.h"
#include "ciuic/status.h"

namespace ciuic {

struct ChosenBackend {
  std::string name;          // "native", "nccl" or "mpi"
  std::string why;           // for describe()
  bool takes_others = true;  // than NCCL does: "nccl" that was asked for does not
};

// The process's CUDA and NCCL, by the paths of the settings.
Result<std::shared_ptr<backend::NcclProcess>> nccl_process(const Config& config);

// What this rank can say of its GPU: the options', or the current one of this thread. "auto" looks
// only where the program has loaded CUDA already, since to start it takes a second; "nccl" loads
// it. Before NCCL is loaded its environment is settled, with `nccl_buffer_size` (0: NCCL's own).
// `device`: its number, -1 without one.
bootstrap::GpuFacts look_for_gpu(const CommunicatorOptions& options, const Config& config,
                                 size_t nccl_buffer_size, int* device);

// `asked` is "auto", "native", "nccl" or "mpi". kUnavailable: "nccl", and a rank has no GPU or no
// NCCL, two ranks share a GPU, or versions differ; on every rank.
Result<ChosenBackend> choose_backend(const std::string& asked,
                                     std::span<const bootstrap::Card> cards);

}  // namespace ciuic
