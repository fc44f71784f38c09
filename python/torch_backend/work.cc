// SPDX-License-Identifier: Apache-2.0
// work.cc: the end of an operation, and who hears of it.

#include "work.h"

#include <ATen/core/ivalue_inl.h>
#include <ATen/core/jit_type.h>

#include <memory>
#include <mutex>
#include <utility>

#include "errors.h"
#include "interrupts.h"

namespace ciuic::torch_backend {

c10::IValue Ending::value() const {
  if (!nested.empty()) return nested;
  return Tensors(results.begin(), results.end());
}

c10::TypePtr Ending::type() const {
  c10::TypePtr type = c10::ListType::create(c10::TensorType::get());
  return nested.empty() ? type : c10::ListType::create(std::move(type));
}

Tensors Ending::tensors() const {
  TORCH_CHECK(nested.empty(), "ciuic: this operation has lists of lists; use get_future().value()");
  return {results.begin(), results.end()};
}

TorchWork::~TorchWork() {
  // Where end() is still to come it holds a reference, so that nothing is left to do but to keep
  // the tensors.
  if (ended_.load(std::memory_order_acquire) || work_.done()) return;
  auto ending = std::make_shared<Ending>(std::move(ending_));
  work_.on_done([ending](const Status&) {});
}

void TorchWork::run(ciuic::Work work, Ending&& ending, std::weak_ptr<Communicator> communicator) {
  communicator_ = std::move(communicator);
  work_ = std::move(work);
  ending_ = std::move(ending);
  if (ending_.finish || recordFunctionEndCallback_) end_when_done();
}

void TorchWork::has_run(ciuic::Work work, Ending&& ending) {
  work_ = std::move(work);
  ending_ = std::move(ending);
  if (ending_.finish || recordFunctionEndCallback_) {
    end();
    if (exception_) std::rethrow_exception(exception_);
    return;
  }
  completed_ = true;
  ended_.store(true, std::memory_order_release);
}

void TorchWork::end_when_done() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (is_registered_) return;
    is_registered_ = true;
  }
  auto self = c10::intrusive_ptr<TorchWork>::unsafe_reclaim_from_nonowning(this);
  work_.on_done([self = std::move(self)](const Status&) { self->end(); });
}

void TorchWork::end() {
  c10::intrusive_ptr<c10::ivalue::Future> future;
  {
    std::unique_lock<std::mutex> lock(mutex_);
    if (is_ending_) {
      cv_.wait(lock, [&] { return ended_.load(std::memory_order_relaxed); });
      lock.unlock();
      return wait_for_future();
    }
    is_ending_ = true;
  }
  std::exception_ptr error = error_of(work_.status(), timeout_);
  if (!error && ending_.finish) {
    try {
      ending_.finish();
    } catch (...) {
      error = std::current_exception();
    }
  }
  ending_.finish = nullptr;
  ending_.keep.clear();
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    exception_ = std::move(error);
    completed_ = true;
    ended_.store(true, std::memory_order_release);
    future = future_;
  }
  cv_.notify_all();
  if (recordFunctionEndCallback_) {
    recordFunctionEndCallback_();
    recordFunctionEndCallback_ = nullptr;
  }
  if (future) complete(*future);
}

void TorchWork::complete(c10::ivalue::Future& future) {
  if (exception_) {
    future.setError(exception_);
  } else {
    future.markCompleted(ending_.value());
  }
}

c10::intrusive_ptr<c10::ivalue::Future> TorchWork::getFuture() {
  bool has_ended = false;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (future_) return future_;
    future_ = c10::make_intrusive<c10::ivalue::Future>(ending_.type());
    has_future_.store(true, std::memory_order_release);
    has_ended = ended_.load(std::memory_order_relaxed);
  }
  if (has_ended) {
    complete(*future_);
  } else {
    end_when_done();
  }
  return future_;
}

// Another thread is at completing it: it is done when wait() returns.
void TorchWork::wait_for_future() {
  if (!has_future_.load(std::memory_order_acquire)) return;
  c10::intrusive_ptr<c10::ivalue::Future> future;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    future = future_;
  }
  future->wait();
}

bool TorchWork::wait(std::chrono::milliseconds timeout) {
  Waited waited;
  if (!ended_.load(std::memory_order_acquire)) {
    waited = wait_interruptibly(work_, communicator_.lock().get(), limit_of(timeout));
    if (waited.is_too_early) throw_too_early(timeout);
    end();
  } else {
    wait_for_future();
  }
  if (waited.is_interrupted) return false;
  if (exception_) std::rethrow_exception(exception_);
  return true;
}

bool TorchWork::isCompleted() {
  if (ended_.load(std::memory_order_acquire)) return true;
  if (!work_.done()) return false;
  end();
  return true;
}

bool TorchWork::isSuccess() const {
  return ended_.load(std::memory_order_acquire) && exception_ == nullptr;
}

std::exception_ptr TorchWork::exception() const {
  return ended_.load(std::memory_order_acquire) ? exception_ : nullptr;
}

int TorchWork::sourceRank() const { return work_.source(); }

Tensors TorchWork::result() { return ending_.tensors(); }

}  // namespace ciuic::torch_backend
