// SPDX-License-Identifier: Apache-2.0
// pmi2_space.h: PMI version 2, as `srun --mpi=pmi2` speaks it.
//
// Texts of "name=value;" with their length in six digits before them: fullinit, kvs-put, kvs-fence,
// kvs-get, finalize (Slurm's src/plugins/mpi/pmi2, and Balaji et al., EuroMPI 2010).
#pragma once

#include <memory>
#include <string>

#include "bootstrap/launcher_space.h"
#include "bootstrap/pmi_pipe.h"

namespace ciuic::bootstrap {

// After "init" has settled the version. `job` and `rank`: PMI_JOBID and PMI_RANK.
Result<std::unique_ptr<LauncherSpace>> begin_pmi2(PmiPipe pipe, const std::string& job, int rank,
                                                  TimeNs deadline);

}  // namespace ciuic::bootstrap
