// SPDX-License-Identifier: Apache-2.0
// arguments.h: one call of an operation, as the caller made it.
#pragma once

#include "ciuic/buffer.h"
#include "ciuic/options.h"
#include "plan/registry.h"

namespace ciuic::collective {

struct Arguments {
  plan::Operation operation = plan::Operation::kBarrier;
  ConstBuffer input;
  MutableBuffer output;
  ReduceOp op = ReduceOp::kSum;
  int root = 0;
  OperationOptions options;
};

}  // namespace ciuic::collective
