// SPDX-License-Identifier: Apache-2.0
// launching.cc: the way of every operation from torch to the core.

#include <ATen/record_function.h>

#include "errors.h"
#include "group.h"
#include "interrupts.h"

namespace ciuic::torch_backend {

TorchGroup::Milliseconds TorchGroup::effective(Milliseconds timeout) const {
  if (timeout.count() > 0) return timeout;
  return Milliseconds(timeout_ms_.load(std::memory_order_relaxed));
}

c10::intrusive_ptr<TorchWork> TorchGroup::new_work(const Manner& manner, Milliseconds timeout) {
  const uint64_t sequence = sequence_.fetch_add(1, std::memory_order_relaxed) + 1;
  // A title makes the constructor record an event, which costs even where nobody listens.
  if (at::hasCallbacks() && at::isRecordFunctionEnabled()) [[unlikely]] {
    return c10::make_intrusive<TorchWork>(
        manner.type, sequence, timeout, manner.title,
        std::optional<Tensors>(Tensors(manner.inputs.begin(), manner.inputs.end())));
  }
  static const std::optional<Tensors> none;
  return c10::make_intrusive<TorchWork>(manner.type, sequence, timeout, nullptr, none);
}

TorchGroup::WorkPointer TorchGroup::launch(std::span<const Call> calls, const Manner& manner,
                                           Ending&& ending) {
  if (is_on_gpu(calls[0])) [[unlikely]]
    return launch_on_gpu(calls, manner, std::move(ending));
  const Milliseconds timeout = effective(manner.timeout);
  c10::intrusive_ptr<TorchWork> work = new_work(manner, timeout);
  const bool coalesces = is_coalescing_.load(std::memory_order_relaxed);
  const bool blocks = !manner.is_async && !coalesces;
  OperationOptions options;
  options.timeout_ms = timeout.count();
  options.wait_follows = blocks;
  Result<ciuic::Work> started = communicator_->submit(calls, options);
  if (!started.ok()) [[unlikely]]
    throw_unless_ok(started.status(), timeout);
  if (blocks) {
    const Waited waited = wait_interruptibly(*started, communicator_.get());
    if (waited.is_interrupted) return work;
    if (!waited.status.ok()) [[unlikely]]
      throw_unless_ok(waited.status, timeout);
    work->has_run(std::move(*started), std::move(ending));
    return work;
  }
  if (!is_message(manner.type)) {
    earlier_.add(*started, ending.finish ? EarlierWork::Pointer(work) : nullptr);
  }
  work->run(std::move(*started), std::move(ending), communicator_);
  if (!coalesces) return work;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    coalesced_.push_back(work);
  }
  // The caller of a blocking operation waits for none, but for them all.
  if (!manner.is_async) return {};
  return work;
}

}  // namespace ciuic::torch_backend
