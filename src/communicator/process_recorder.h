// SPDX-License-Identifier: Apache-2.0
// process_recorder.h: the flight recorder of this process, in a memfd that others can read.
//
// There is one from the first group on, until the process ends: what led to an error is still there
// when the group is not. Its memory is the launcher's (CIUIC_TRACE_FD) where that is free, so that
// the launcher can read it when this process was killed; else a memfd of its own, which shows as
// memfd:ciuic-trace in /proc/PID/fd. When a group fails, what is recorded is also written to
// CIUIC_TRACE_DIR. After a fork the child makes its own.
#pragma once

#include <memory>

#include "base/config.h"
#include "topology/host.h"
#include "trace/recorder.h"

namespace ciuic {

inline constexpr const char* kTraceMemoryName = "ciuic-trace";

// Null where the settings say so, and where there is no memory for it, which is logged.
std::shared_ptr<trace::Recorder> process_recorder(const Config& config, const topology::Host& host);

// The recorder of a group, which writes nothing where there is none of the process.
trace::GroupRecorder record_group(const Config& config, const topology::Host& host,
                                  const trace::GroupInfo& group);

}  // namespace ciuic
