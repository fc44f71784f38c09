// SPDX-License-Identifier: Apache-2.0
// environment.h: which rank this process is, as its launcher says in the environment.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "ciuic/status.h"

namespace ciuic::bootstrap {

struct Launched {
  int rank = -1;
  int size = -1;        // -1: PMIx, which tells it by itself
  int local_rank = -1;  // among the processes of this host; -1: the launcher does not say
  int local_size = -1;
  std::string launcher;  // "torchrun", "Open MPI", "PMI", "Slurm", "PMIx", ...
  std::string warning;   // to be logged; empty: none
};

// A variable's value; nothing where it is not set.
using Variables = std::function<std::optional<std::string>(const char* name)>;

// Takes the first launcher whose variables are all there. kUnavailable: none, with the list of what
// was looked for. kInvalidArgument: a value that is no number, or a rank outside the size.
Result<Launched> read_launcher(const Variables& variables);

// The version of PMI to speak first at PMI_FD: 2 under `srun --mpi=pmi2`, else 1.
int pmi_version(const Variables& variables);

}  // namespace ciuic::bootstrap
