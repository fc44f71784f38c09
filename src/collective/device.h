// SPDX-License-Identifier: Apache-2.0
// device.h: where the memory of calls lies.
#pragma once

#include <span>

#include "ciuic/call.h"
#include "ciuic/status.h"

namespace ciuic::collective {

// That of all buffers of all calls, which must be one; the CPU where there is no memory at all.
// kInvalidArgument: they lie on several devices; nothing was sent. `rank`: of this process, for
// buffers that are looked at on the root alone.
Result<Device> device_of(std::span<const Call> calls, int rank);

// The call as one of the CPU's memory, for checks that look at addresses alone.
Call on_cpu(Call call);

}  // namespace ciuic::collective
