// SPDX-License-Identifier: Apache-2.0
// pmi1_space.h: PMI version 1, as MPICH's and Intel MPI's Hydra speak it.
//
// Text lines, one answer a request: get_maxes, get_my_kvsname, put, barrier_in, get, finalize
// (Balaji et al., "PMI: A Scalable Parallel Process-Management Interface for Extreme-Scale
// Systems", EuroMPI 2010).
#pragma once

#include <memory>

#include "bootstrap/launcher_space.h"
#include "bootstrap/pmi_pipe.h"

namespace ciuic::bootstrap {

// After "init" has settled the version. kUnsupported: the launcher's values are too short.
Result<std::unique_ptr<LauncherSpace>> begin_pmi1(PmiPipe pipe, TimeNs deadline);

}  // namespace ciuic::bootstrap
