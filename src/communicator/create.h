// SPDX-License-Identifier: Apache-2.0
// create.h: how a communicator's state comes into being; for those who make groups of groups.
#pragma once

#include <memory>

#include "base/config.h"
#include "ciuic/status.h"
#include "communicator/mpi_join.h"
#include "communicator/state.h"

namespace ciuic {

// Joins. `options` with nothing left to default but rank, size and store. `mpi`: where that is the
// backend, and begun. `nccl_buffer_size`: what was asked for; 0: nothing was.
Result<std::unique_ptr<Communicator::State>> make_state(const CommunicatorOptions& options,
                                                        const Config& config,
                                                        int64_t join_timeout_ms,
                                                        const MpiJoin& mpi = {},
                                                        size_t nccl_buffer_size = 0);

}  // namespace ciuic
