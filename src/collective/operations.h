// SPDX-License-Identifier: Apache-2.0
// operations.h: the operations, each in a file of its name: from a call to the engine's request.
//
// kInvalidArgument, kUnsupported: the caller's mistake; nothing was sent. Cost: the checks, and a
// look into the chooser's caches.
#pragma once

#include "ciuic/status.h"
#include "collective/arguments.h"
#include "collective/chooser.h"
#include "engine/engine.h"

namespace ciuic::collective {

Result<engine::Request> all_reduce(Chooser& chooser, const Arguments& arguments);
Result<engine::Request> reduce(Chooser& chooser, const Arguments& arguments);
Result<engine::Request> broadcast(Chooser& chooser, const Arguments& arguments);
Result<engine::Request> all_gather(Chooser& chooser, const Arguments& arguments);
Result<engine::Request> barrier(Chooser& chooser, const Arguments& arguments);

// Whichever the arguments name.
Result<engine::Request> prepare(Chooser& chooser, const Arguments& arguments);

}  // namespace ciuic::collective
