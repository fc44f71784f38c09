// SPDX-License-Identifier: Apache-2.0
// launch.h: our operations as NCCL's calls, and those that it lacks as sends and receives, or as a
// broadcast or reduce for each rank.
//
// What is moved is bytes. What a rank has for itself is copied on the stream; a group of one rank
// does nothing else. Truth values are bytes: "or" is the maximum, "and" the minimum. Complex
// numbers are added as twice as many floats.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "backend/nccl/nccl_comm.h"
#include "ciuic/call.h"
#include "ciuic/status.h"

namespace ciuic::backend {

// Which rank of how many, and of which NCCL on which GPUs; one rank needs none.
struct NcclPlace {
  int rank = 0;
  int size = 1;
  int version = 0;
  int capability = 0;      // the lowest of the ranks' GPUs; 90 is 9.0
  bool has_other = false;  // calls that NCCL cannot reduce are taken by another backend
};

// Whether NCCL does the call's arithmetic, if it has any.
bool can_reduce(const NcclPlace& place, const Call& call);

// The calls, which were checked one by one (collective/prepare.h), as calls of NCCL's.
//   kUnsupported      NCCL cannot do it
//   kInvalidArgument  messages of this rank to itself that do not fit
// Both name what to do; nothing was sent.
Status check_calls(const NcclPlace& place, std::span<const Call> calls);

// Puts them into the communicator's stream, as one group of NCCL's.
Status launch(const NcclPlace& place, std::span<const Call> calls, NcclComm* comm);

}  // namespace ciuic::backend
