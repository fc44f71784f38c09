// SPDX-License-Identifier: Apache-2.0
// operation.h: one operation in MPI: which of MPI's calls it is, and what is done before and after
// them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "backend/mpi/types.h"
#include "base/clock.h"
#include "ciuic/call.h"
#include "ciuic/work.h"
#include "drivers/mpi/mpi.h"
#include "engine/engine.h"

namespace ciuic::backend {

// A group's communicator of MPI's.
struct MpiCommunicator {
  const mpi::Library* library = nullptr;
  MpiTypes* types = nullptr;
  mpi::Handle handle = 0;
  int rank = 0;
  int size = 1;
  size_t buffer_size = 0;  // staging of one operation at most
};

struct MpiOperation {
  engine::Request request;  // checked, and described as the native backend's; its plan is not used
  Call call;
  uint32_t sequence = 0;  // of collective operations, or of messages
  TimeNs called_at = 0;
  engine::WorkState* work = nullptr;
  Work check;  // CIUIC_CHECK: the ranks compare their calls, which ends before MPI is called

  bool is_issued = false;             // no further call of MPI follows
  size_t pieces = 0;                  // that were issued
  std::vector<mpi::Handle> requests;  // under way
  std::vector<mpi::Handle> types;     // made for it
  MpiExtent expected;                 // of a receive

  // What MPI reads until it is done.
  std::vector<int> numbers;
  std::vector<std::byte> packed_types;
  std::unique_ptr<std::byte[]> staging;
  size_t staging_bytes = 0;

  bool is_message() const { return call.operation >= Operation::kSend; }

  // Where MPI writes the request of its next call; not kept where that fails.
  mpi::Handle* next_request() { return &requests.emplace_back(0); }
  int made(int code) {
    if (code != mpi::kSuccess) requests.pop_back();
    return code;
  }
};

// Makes the next of the operation's calls; to be called until it is_issued, again when the requests
// of the call before have ended. Returns MPI's code. All ranks' calls on a communicator must have
// one order, so no other collective operation is issued between two calls of one.
int issue(const MpiCommunicator& communicator, MpiOperation* operation);

// When all has ended: what is left to do to the output.
void conclude(const MpiCommunicator& communicator, MpiOperation* operation);

// Of issue(), which of the two it is.
int issue_move(const MpiCommunicator& communicator, MpiOperation* operation);
int issue_reduction(const MpiCommunicator& communicator, MpiOperation* operation);

}  // namespace ciuic::backend
