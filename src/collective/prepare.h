// SPDX-License-Identifier: Apache-2.0
// prepare.h: from a call to the engine's request. Start here.
#pragma once

#include "ciuic/call.h"
#include "ciuic/status.h"
#include "collective/chooser.h"
#include "engine/engine.h"

namespace ciuic::collective {

// Checks the call's buffers against the shape of its operation, has the plan chosen, and binds it.
// Cost: the checks, and a look into the chooser's caches; uneven calls also allocate their counts.
//
// kInvalidArgument, kUnsupported: the caller's mistake; nothing was sent. Each says what to do.
Result<engine::Request> prepare(Chooser& chooser, const Call& call);

// "all_to_all_v", "send", ...
const char* name_of(const Call& call);

}  // namespace ciuic::collective
