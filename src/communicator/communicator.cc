// SPDX-License-Identifier: Apache-2.0
// communicator.cc: the public operations; each becomes one call of the backend.

#include "ciuic/communicator.h"

#include <fmt/format.h>

#include "base/fork.h"
#include "communicator/state.h"

namespace ciuic {

Communicator::Communicator(std::unique_ptr<State> state) : state_(std::move(state)) {}

Communicator::~Communicator() {
  // In a forked child the threads and the peers' trust are the parent's; nothing is touched.
  if (state_->made_in == fork_generation()) {
    [[maybe_unused]] const Status unheard = close();
  } else {
    (void)state_->backend.release();
  }
}

int Communicator::rank() const { return state_->rank; }
int Communicator::size() const { return state_->size; }

Result<Work> Communicator::State::submit(const collective::Arguments& arguments) {
  if (made_in != fork_generation()) {
    return Status(StatusCode::kClosed,
                  fmt::format("{}: this process was forked from the one that joined the group, and "
                              "cannot use its communicator; start workers by spawn, or join anew",
                              plan::name_of(arguments.operation)));
  }
  if (closed.load(std::memory_order_acquire)) {
    return Status(StatusCode::kClosed, fmt::format("{}: the communicator is closed; make a new one",
                                                   plan::name_of(arguments.operation)));
  }
  return backend->submit(arguments);
}

Result<Work> Communicator::all_reduce(ConstBuffer input, MutableBuffer output, ReduceOp op,
                                      const OperationOptions& options) {
  return state_->submit({plan::Operation::kAllReduce, input, output, op, 0, options});
}

Result<Work> Communicator::reduce(ConstBuffer input, MutableBuffer output, ReduceOp op, int root,
                                  const OperationOptions& options) {
  return state_->submit({plan::Operation::kReduce, input, output, op, root, options});
}

Result<Work> Communicator::broadcast(MutableBuffer buffer, int root,
                                     const OperationOptions& options) {
  return state_->submit(
      {plan::Operation::kBroadcast, buffer, buffer, ReduceOp::kSum, root, options});
}

Result<Work> Communicator::all_gather(ConstBuffer input, MutableBuffer output,
                                      const OperationOptions& options) {
  return state_->submit({plan::Operation::kAllGather, input, output, ReduceOp::kSum, 0, options});
}

Result<Work> Communicator::barrier(const OperationOptions& options) {
  return state_->submit({plan::Operation::kBarrier, {}, {}, ReduceOp::kSum, 0, options});
}

Status Communicator::close() {
  if (state_->made_in != fork_generation()) {
    return {StatusCode::kClosed,
            "close: this process was forked from the one that joined the group"};
  }
  if (state_->closed.exchange(true, std::memory_order_acq_rel)) return {};
  // Peers see that this rank left before they see that its links have ended.
  if (state_->control != nullptr) state_->control->leave();
  const Status untold = state_->backend->close();
  return state_->has_shrunk.load(std::memory_order_acquire) ? Status() : untold;
}

Status Communicator::abort(const std::string& reason) {
  if (state_->made_in != fork_generation()) {
    return {StatusCode::kClosed,
            "abort: this process was forked from the one that joined the group"};
  }
  if (state_->closed.load(std::memory_order_acquire)) return {};
  state_->backend->report(
      {.status = {StatusCode::kAborted, fmt::format("rank {} called abort(){}{}", state_->rank,
                                                    reason.empty() ? "" : ": ", reason)}});
  return {};
}

Status Communicator::status() const {
  if (state_->made_in != fork_generation()) {
    return {StatusCode::kClosed,
            "status: this process was forked from the one that joined the group"};
  }
  return state_->backend->status();
}

MemoryUsage Communicator::memory_usage() const {
  if (state_->made_in != fork_generation() || state_->closed.load(std::memory_order_acquire)) {
    return {};
  }
  return {.staging = state_->backend->staging_bytes(),
          .segments = state_->segment_bytes,
          .links = state_->backend->link_bytes()};
}

std::string Communicator::describe() const { return state_->description; }

}  // namespace ciuic
