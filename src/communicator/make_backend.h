// SPDX-License-Identifier: Apache-2.0
// make_backend.h: the backend of a group whose ranks have joined.
#pragma once

#include <memory>

#include "base/config.h"
#include "ciuic/options.h"
#include "ciuic/status.h"
#include "communicator/join.h"
#include "communicator/mpi_join.h"
#include "communicator/state.h"
#include "engine/driver.h"
#include "topology/host.h"

namespace ciuic {

struct BackendParts {
  const CommunicatorOptions& options;
  const Config& config;
  const topology::Host& host;
  std::shared_ptr<engine::Driver> driver;
  const MpiJoin& mpi;
  int device = -1;  // this rank's GPU; -1: none was looked for, or found
};

// Fills `state->backend` in, on the state's control plane, and adds to its description.
Status make_backend(const BackendParts& parts, Joined joined, Communicator::State* state);

}  // namespace ciuic
