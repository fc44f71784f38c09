// SPDX-License-Identifier: Apache-2.0
// communicator.cc: the public operations; each becomes one call of the backend.

#include "ciuic/communicator.h"

#include <fmt/format.h>

#include "base/fork.h"
#include "collective/prepare.h"
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

// The control plane asks the backend to the end.
Communicator::State::~State() {
  if (control != nullptr && made_in == fork_generation()) control->leave();
}

Status Communicator::State::check_usable(const char* name) const {
  if (made_in != fork_generation()) {
    return {StatusCode::kClosed,
            fmt::format("{}: this process was forked from the one that joined the group, and "
                        "cannot use its communicator; start workers by spawn, or join anew",
                        name)};
  }
  if (closed.load(std::memory_order_acquire)) {
    return {StatusCode::kClosed,
            fmt::format("{}: the communicator is closed; make a new one", name)};
  }
  return {};
}

// Tags above are the library's own; the backend takes them, too.
static Status check_tags(std::span<const Call> calls) {
  for (const Call& call : calls) {
    if (call.operation >= Operation::kSend && call.tag > kMaxTag) {
      return {StatusCode::kInvalidArgument,
              fmt::format("{}: tag {} is too large; tags are 0 to {}", collective::name_of(call),
                          call.tag, kMaxTag)};
    }
  }
  return {};
}

Result<Work> Communicator::submit(std::span<const Call> calls, const OperationOptions& options) {
  const char* name = calls.empty() ? "submit" : collective::name_of(calls.front());
  CIUIC_RETURN_IF_ERROR(state_->check_usable(name));
  CIUIC_RETURN_IF_ERROR(check_tags(calls));
  return state_->backend->submit(calls, options);
}

Result<PersistentOperation> Communicator::persistent(std::span<const Call> calls,
                                                     const OperationOptions& options) {
  CIUIC_RETURN_IF_ERROR(state_->check_usable("persistent"));
  CIUIC_RETURN_IF_ERROR(check_tags(calls));
  Result<std::unique_ptr<backend::Prepared>> prepared = state_->backend->prepare(calls, options);
  if (!prepared.ok()) return prepared.status();
  return PersistentOperation(std::move(*prepared));
}

Status Communicator::add_plan(const std::string& plan_file) {
  CIUIC_RETURN_IF_ERROR(state_->check_usable("add_plan"));
  return state_->backend->add_plan(plan_file);
}

Result<Work> Communicator::all_reduce(ConstBuffer input, MutableBuffer output, ReduceOp op,
                                      const OperationOptions& options) {
  return submit(Call::all_reduce(input, output, op), options);
}

Result<Work> Communicator::reduce(ConstBuffer input, MutableBuffer output, ReduceOp op, int root,
                                  const OperationOptions& options) {
  return submit(Call::reduce(input, output, op, root), options);
}

Result<Work> Communicator::broadcast(MutableBuffer buffer, int root,
                                     const OperationOptions& options) {
  return submit(Call::broadcast(buffer, root), options);
}

Result<Work> Communicator::all_gather(ConstBuffer input, MutableBuffer output,
                                      const OperationOptions& options) {
  return submit(Call::all_gather(input, output), options);
}

Result<Work> Communicator::all_gather_v(ConstBuffer input, MutableBuffer output,
                                        std::vector<int64_t> counts,
                                        const OperationOptions& options) {
  return submit(Call::all_gather_v(input, output, std::move(counts)), options);
}

Result<Work> Communicator::reduce_scatter(ConstBuffer input, MutableBuffer output, ReduceOp op,
                                          const OperationOptions& options) {
  return submit(Call::reduce_scatter(input, output, op), options);
}

Result<Work> Communicator::reduce_scatter_v(ConstBuffer input, std::vector<int64_t> counts,
                                            MutableBuffer output, ReduceOp op,
                                            const OperationOptions& options) {
  return submit(Call::reduce_scatter_v(input, std::move(counts), output, op), options);
}

Result<Work> Communicator::all_to_all(ConstBuffer input, MutableBuffer output,
                                      const OperationOptions& options) {
  return submit(Call::all_to_all(input, output), options);
}

Result<Work> Communicator::all_to_all_v(ConstBuffer input, std::vector<int64_t> input_counts,
                                        MutableBuffer output, std::vector<int64_t> output_counts,
                                        const OperationOptions& options) {
  return submit(
      Call::all_to_all_v(input, std::move(input_counts), output, std::move(output_counts)),
      options);
}

Result<Work> Communicator::gather(ConstBuffer input, MutableBuffer output, int root,
                                  const OperationOptions& options) {
  return submit(Call::gather(input, output, root), options);
}

Result<Work> Communicator::gather_v(ConstBuffer input, MutableBuffer output,
                                    std::vector<int64_t> counts, int root,
                                    const OperationOptions& options) {
  return submit(Call::gather_v(input, output, std::move(counts), root), options);
}

Result<Work> Communicator::scatter(ConstBuffer input, MutableBuffer output, int root,
                                   const OperationOptions& options) {
  return submit(Call::scatter(input, output, root), options);
}

Result<Work> Communicator::scatter_v(ConstBuffer input, std::vector<int64_t> counts,
                                     MutableBuffer output, int root,
                                     const OperationOptions& options) {
  return submit(Call::scatter_v(input, std::move(counts), output, root), options);
}

Result<Work> Communicator::barrier(const OperationOptions& options) {
  return submit(Call::barrier(), options);
}

Result<Work> Communicator::send(ConstBuffer input, int destination, int tag,
                                const OperationOptions& options) {
  return submit(Call::send(input, destination, tag), options);
}

Result<Work> Communicator::recv(MutableBuffer output, int source, int tag,
                                const OperationOptions& options) {
  return submit(Call::recv(output, source, tag), options);
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
  state_->shared_pool->remove_user();
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
          .links = state_->backend->link_bytes(),
          .tensors = state_->shared_pool->held()};
}

Result<std::shared_ptr<std::byte>> Communicator::allocate(size_t bytes) {
  CIUIC_RETURN_IF_ERROR(state_->check_usable("allocate"));
  Result<std::shared_ptr<std::byte>> memory = state_->shared_pool->allocate(bytes);
  if (!memory.ok()) {
    return Status(memory.status().code(), "allocate: " + memory.status().message());
  }
  return memory;
}

std::string Communicator::describe() const { return state_->description; }

}  // namespace ciuic
