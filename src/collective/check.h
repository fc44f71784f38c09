// SPDX-License-Identifier: Apache-2.0
// check.h: what the operations ask of their arguments alike. Each says what to do.
#pragma once

#include "ciuic/status.h"
#include "collective/arguments.h"
#include "collective/chooser.h"
#include "engine/engine.h"

namespace ciuic::collective {

// Not null, unless empty; a count that is not negative; on the CPU.
Status check_buffer(const char* operation, const char* name, const ConstBuffer& buffer);

// Alike in dtype, and either the same memory or apart.
Status check_pair(const char* operation, const ConstBuffer& input, const ConstBuffer& output);

Status check_root(const char* operation, int root, int size);
Status check_op(const char* operation, DataType dtype, ReduceOp op);

// Chooses the plan and makes what the engine takes. `count` is the plan's unit.
engine::Request request_for(Chooser& chooser, const Arguments& arguments, int64_t count);

}  // namespace ciuic::collective
