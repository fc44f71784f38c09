// SPDX-License-Identifier: Apache-2.0
// launching_gpu.cc: the way of operations on a GPU's memory from torch to the core.
//
// They are put behind what the caller's current stream has. What is coalesced goes to the core as
// one: NCCL does one call after another, and messages of ranks to each other would wait for ever.

#include <ATen/record_function.h>
#include <c10/core/DeviceGuard.h>

#include <algorithm>
#include <utility>

#include "errors.h"
#include "gpu.h"
#include "gpu_work.h"
#include "group.h"

namespace ciuic::torch_backend {

TorchGroup::GpuWorkPointer TorchGroup::new_gpu_work(const Manner& manner, Milliseconds timeout,
                                                    c10::Device device, Ending&& ending) {
  const uint64_t sequence = sequence_.fetch_add(1, std::memory_order_relaxed) + 1;
  const bool is_profiled = at::hasCallbacks() && at::isRecordFunctionEnabled();
  std::optional<Tensors> inputs;
  if (is_profiled) inputs.emplace(manner.inputs.begin(), manner.inputs.end());
  return c10::make_intrusive<GpuWork>(manner.type, sequence, timeout, device, std::move(ending),
                                      is_profiled ? manner.title : nullptr, inputs);
}

TorchGroup::WorkPointer TorchGroup::launch_on_gpu(std::span<const Call> calls, const Manner& manner,
                                                  Ending&& ending) {
  const Milliseconds timeout = effective(manner.timeout);
  const GpuWorkPointer work = new_gpu_work(manner, timeout, gpu_of(calls[0]), std::move(ending));
  if (is_coalescing_.load(std::memory_order_relaxed)) {
    const std::lock_guard<std::mutex> lock(mutex_);
    together_.calls.insert(together_.calls.end(), calls.begin(), calls.end());
    together_.works.push_back(work);
    together_.timeout = std::max(together_.timeout, timeout);
    coalesced_.push_back(work);
    return manner.is_async ? WorkPointer(work) : nullptr;
  }
  start_on_gpu(calls, std::span(&work, 1), timeout, !manner.is_async);
  if (manner.is_async) return work;
  work->wait();
  return {};
}

void TorchGroup::start_on_gpu(std::span<const Call> calls, std::span<const GpuWorkPointer> works,
                              Milliseconds timeout, bool wait_follows) {
  OperationOptions options;
  options.timeout_ms = timeout.count();
  options.wait_follows = wait_follows;
  options.stream = handle_of(current_stream(gpu_of(calls[0])));
  const Result<ciuic::Work> started = communicator_->submit(calls, options);
  throw_unless_ok(started.status(), timeout);
  for (const GpuWorkPointer& work : works) {
    const bool copies_back = work->copies_back();
    work->start(*started, communicator_, wait_follows);
    // Also one that its caller waits for: he waits for no more than that a stream does.
    if (!is_message(work->retrieveOpType())) {
      earlier_.add(*started, copies_back ? EarlierWork::Pointer(work) : nullptr);
    }
  }
}

void TorchGroup::start_together() {
  Together together;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    together = std::exchange(together_, {});
  }
  if (together.calls.empty()) return;
  start_on_gpu(together.calls, together.works, together.timeout, false);
}

}  // namespace ciuic::torch_backend
