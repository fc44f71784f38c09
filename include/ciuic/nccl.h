// SPDX-License-Identifier: Apache-2.0
// nccl.h: the environment that processes with backend "nccl" should have, for launchers.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "ciuic/export.h"

namespace ciuic {

struct NcclVariable {
  std::string name;   // "NCCL_IB_GID_INDEX"
  std::string value;  // "3"
  std::string why;    // one sentence
};

struct NcclAdvice {
  std::vector<NcclVariable> variables;  // that this process's environment does not have
  std::vector<std::string> warnings;    // of what it has, and of what cannot be used here
};

// For this host, whose RDMA ports it looks at. A communicator sets the same by itself where NCCL is
// not loaded yet. `buffer_size`: as in CommunicatorOptions; 0 leaves NCCL's own.
CIUIC_EXPORT NcclAdvice nccl_advice(size_t buffer_size = 0);

}  // namespace ciuic
