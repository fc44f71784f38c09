// SPDX-License-Identifier: Apache-2.0
// gpu_work.cc: who waits for an operation, and in which stream.

#include "gpu_work.h"

#include <ATen/core/ivalue_inl.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>

#include <utility>

#include "errors.h"
#include "interrupts.h"

namespace ciuic::torch_backend {

GpuWork::~GpuWork() { release_resources(); }

// Nobody has it any more; end_by_itself() is not to come, which would.
void GpuWork::release_resources() {
  if (is_started_ && !is_handed_over_ && !work_.done()) {
    auto ending = std::make_shared<Ending>(std::move(ending_));
    work_.on_done([ending](const Status&) {});
  }
  is_started_ = false;
  ending_ = {};
  future_.reset();
}

void GpuWork::start(ciuic::Work work, std::weak_ptr<Communicator> communicator, bool wait_follows) {
  communicator_ = std::move(communicator);
  work_ = std::move(work);
  is_started_ = true;
  if (!wait_follows && (ending_.finish || recordFunctionEndCallback_)) end_when_done();
}

void GpuWork::check_started() const {
  TORCH_CHECK(is_started_, "ciuic: this operation starts when the coalescing that it is in ends");
}

// Has the stream wait, and says how the operation has ended, if it has; nothing where the host
// would have to wait. A null stream is that of the current device, which callers see to.
std::optional<Status> GpuWork::order(const c10::Stream& stream) {
  Status status = work_.wait_on(handle_of(stream), 0);
  if (status.code() != StatusCode::kTimeout) return status;
  // It is the operation's own, or that of this wait, since which the operation may have ended.
  if (work_.done()) return work_.status();
  return std::nullopt;
}

bool GpuWork::wait(Milliseconds timeout) {
  check_started();
  const c10::DeviceGuard on_device(device_);
  const c10::Stream stream = current_stream(device_);
  const Waited waited =
      wait_interruptibly(work_, handle_of(stream), communicator_.lock().get(), limit_of(timeout));
  if (waited.is_too_early) throw_too_early(timeout);
  const std::exception_ptr error = end_in(stream, waited.status);
  wait_for_future();
  if (waited.is_interrupted) return false;
  if (error) std::rethrow_exception(error);
  return true;
}

// The stream waits for the operation, or that has failed.
std::exception_ptr GpuWork::end_in(const c10::Stream& stream, const Status& status) {
  std::exception_ptr error = error_of(status, timeout_);
  if (!error) {
    try {
      copy_back_in(stream);
    } catch (...) {
      error = std::current_exception();
    }
  }
  std::function<void()> end_of_profile;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!exception_) exception_ = error;
    completed_ = true;
    end_of_profile = std::exchange(recordFunctionEndCallback_, nullptr);
    error = exception_;
  }
  if (end_of_profile) end_of_profile();
  return error;
}

void GpuWork::copy_back_in(const c10::Stream& stream) {
  const std::lock_guard<std::mutex> lock(copying_);
  if (copied_) {
    copied_->block(stream);
  } else if (ending_.finish) {
    const c10::StreamGuard in_stream(stream);
    std::exchange(ending_.finish, nullptr)();
    copied_.emplace(c10::DeviceType::CUDA);
    copied_->record(stream);
  }
  if (!std::exchange(is_handed_over_, true)) hand_over_to(stream);
}

// From now on torch's allocator keeps the memory, until the stream has done what it has now.
void GpuWork::hand_over_to(const c10::Stream& stream) {
  const auto note = [&stream, cuda = cuda()](const at::Tensor& tensor) {
    if (!tensor.defined() || !tensor.is_cuda()) return;
    cuda.recordDataPtrOnStream(tensor.storage().data_ptr(), stream);
  };
  for (const at::Tensor& tensor : ending_.results) note(tensor);
  for (const at::Tensor& tensor : ending_.keep) note(tensor);
  for (const Tensors& list : ending_.nested) {
    for (const at::Tensor& tensor : list) note(tensor);
  }
  ending_.keep.clear();
}

void GpuWork::end_when_done() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (std::exchange(is_registered_, true)) return;
  }
  auto self = c10::intrusive_ptr<GpuWork>::unsafe_reclaim_from_nonowning(this);
  work_.on_done([self = std::move(self)](const Status&) { self->end_by_itself(); });
}

// It has ended, and nobody may be waiting.
void GpuWork::end_by_itself() {
  const c10::DeviceGuard on_device(device_);
  const c10::Stream stream = side_stream(device_);
  const Status status = order(stream).value_or(work_.status());  // it has ended
  (void)end_in(stream, status);
  complete(stream, status);
}

// Completes the future, if there is one, in a stream that waits for the operation: there its events
// are recorded, for which the streams of callbacks wait.
void GpuWork::complete(const c10::Stream& stream, const Status& status) {
  c10::intrusive_ptr<c10::ivalue::Future> future;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!future_ || std::exchange(is_completing_, true)) return;
    future = future_;
  }
  const std::exception_ptr error = end_in(stream, status);
  const c10::StreamGuard in_stream(stream);
  if (error) {
    future->setError(error);
  } else {
    future->markCompleted(ending_.value());
  }
}

// At once, where that takes no waiting of the host's.
c10::intrusive_ptr<c10::ivalue::Future> GpuWork::getFuture() {
  check_started();
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (future_) return future_;
    future_ =
        c10::make_intrusive<c10::ivalue::Future>(ending_.type(), std::vector<c10::Device>{device_});
  }
  const c10::DeviceGuard on_device(device_);
  const c10::Stream stream = side_stream(device_);
  if (const std::optional<Status> status = order(stream)) {
    complete(stream, *status);
  } else {
    end_when_done();
  }
  return future_;
}

// It is done when wait() returns.
void GpuWork::wait_for_future() {
  c10::intrusive_ptr<c10::ivalue::Future> future;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    future = future_;
  }
  if (!future || future->completed()) return;
  const c10::Stream stream = side_stream(device_);
  if (const std::optional<Status> status = order(stream)) complete(stream, *status);
  future->wait();
}

bool GpuWork::isCompleted() {
  if (!is_started_ || !work_.done()) return false;
  const c10::DeviceGuard on_device(device_);
  const auto is_to_copy = [this] {
    const std::lock_guard<std::mutex> lock(copying_);
    return static_cast<bool>(ending_.finish);
  };
  if (work_.status().ok() && is_to_copy()) {
    const c10::Stream stream = side_stream(device_);
    (void)end_in(stream, order(stream).value_or(work_.status()));
  }
  const std::lock_guard<std::mutex> lock(copying_);
  return !copied_ || copied_->query();
}

bool GpuWork::isSuccess() const { return is_started_ && work_.done() && exception() == nullptr; }

std::exception_ptr GpuWork::exception() const {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (exception_) return exception_;
  }
  return is_started_ && work_.done() ? error_of(work_.status(), timeout_) : nullptr;
}

}  // namespace ciuic::torch_backend
