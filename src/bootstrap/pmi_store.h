// SPDX-License-Identifier: Apache-2.0
// pmi_store.h: the launcher's conversation over the descriptor in PMI_FD, in PMI's versions 1
// and 2.
#pragma once

#include <memory>
#include <string>

#include "bootstrap/launcher_session.h"

namespace ciuic::bootstrap {

struct PmiOptions {
  int fd = -1;      // PMI_FD; stays the caller's
  int version = 1;  // that is asked for first; the other one where the launcher refuses it
  int rank = 0;     // PMI_RANK
  std::string job;  // PMI_JOBID; in version 2 the launcher compares both with what it knows
};

// kMismatch: the launcher speaks neither version.
Result<std::shared_ptr<LauncherSession>> open_pmi(const PmiOptions& options, TimeNs deadline);

// The session of this process over that descriptor, made by the first call. It lasts as long as the
// process, because the launcher allows one conversation a process.
Result<std::shared_ptr<LauncherSession>> process_pmi_session(const PmiOptions& options,
                                                             TimeNs deadline);

}  // namespace ciuic::bootstrap
