// SPDX-License-Identifier: Apache-2.0
// mpi_join.h: a group whose backend is mpi: its ranks are those of a communicator of MPI's, by
// which they also meet.
//
// MPI comes first. Launchers hold one conversation a process (PMI), or none with a second library
// (PMIx), and it is MPI's; so nothing of the launcher's is used for the join but its word on how
// many ranks it started.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "backend/mpi/mpi_process.h"
#include "base/clock.h"
#include "base/config.h"
#include "ciuic/options.h"
#include "ciuic/status.h"

namespace ciuic {

struct MpiJoin {
  std::shared_ptr<backend::MpiProcess> process;  // null: another backend

  // The group's communicator. All its ranks call it, once they have joined.
  std::function<Result<mpi::Handle>()> make;

  // What describe() says of it: a JSON object.
  std::string description() const;
};

// Opens MPI and settles rank, size and store in `options`.
//   kUnavailable  no library, or one that is not the launcher's: it knows no other rank
//   kMismatch     a size or rank in `options` that is not the communicator's
//   kTimeout      not all ranks of the communicator came
Result<MpiJoin> begin_mpi(CommunicatorOptions* options, const Config& config, TimeNs deadline);

}  // namespace ciuic
