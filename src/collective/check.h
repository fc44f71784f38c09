// SPDX-License-Identifier: Apache-2.0
// check.h: what the operations ask of their arguments alike. Each says what to do.
#pragma once

#include <cstdint>
#include <vector>

#include "ciuic/buffer.h"
#include "ciuic/status.h"

namespace ciuic::collective {

// Not null, unless empty; a count that is not negative; on the CPU.
Status check_buffer(const char* operation, const char* name, const ConstBuffer& buffer);

// Alike in dtype, and apart; or `input` begins `offset` bytes into `output` (it may be negative)
// and that is allowed.
Status check_pair(const char* operation, const ConstBuffer& input, const ConstBuffer& output,
                  int64_t offset, bool allows_in_place);

// `what`: "root", "destination", ...
Status check_rank(const char* operation, const char* what, int rank, int size);

Status check_op(const char* operation, DataType dtype, ReduceOp op);

// One for each rank, none negative, and together as many as the buffer has.
Status check_counts(const char* operation, const char* name, const std::vector<int64_t>& counts,
                    int size, const ConstBuffer& buffer);

}  // namespace ciuic::collective
