// SPDX-License-Identifier: Apache-2.0
// choose_backend.h: which backend a group gets, decided alike on all ranks from their cards.
#pragma once

#include <span>
#include <string>

#include "base/config.h"
#include "bootstrap/card.h"
#include "ciuic/options.h"
#include "ciuic/status.h"

namespace ciuic {

struct ChosenBackend {
  std::string name;       // "native", "nccl" or "mpi"
  std::string why;        // for describe()
  bool takes_cpu = true;  // tensors of the CPU, too: "nccl" that was asked for does not
};

// What this rank can say of its GPU, which is the current one of this thread. "auto" looks only
// where the program has loaded CUDA already, since to start it takes a second; "nccl" loads it.
// `device`: its number, -1 without one.
bootstrap::GpuFacts look_for_gpu(const CommunicatorOptions& options, const Config& config,
                                 int* device);

// `asked` is "auto", "native", "nccl" or "mpi". kUnavailable: "nccl", and a rank has no GPU or no
// NCCL, two ranks share a GPU, or versions differ; on every rank.
Result<ChosenBackend> choose_backend(const std::string& asked,
                                     std::span<const bootstrap::Card> cards);

}  // namespace ciuic
