// SPDX-License-Identifier: Apache-2.0
// coalescing.cc: operations between startCoalescing() and endCoalescing(). Each is started at once,
// none is waited for; what they give is one Work, which ends when all have.

#include <ATen/core/ivalue_inl.h>

#include "group.h"

namespace ciuic::torch_backend {

namespace {

class JoinedWork final : public c10d::Work {
 public:
  explicit JoinedWork(std::vector<TorchGroup::WorkPointer> parts)
      : c10d::Work(-1, c10d::OpType::COALESCED), parts_(std::move(parts)) {}

  bool isCompleted() override {
    for (const auto& part : parts_) {
      if (!part->isCompleted()) return false;
    }
    return true;
  }

  bool isSuccess() const override {
    for (const auto& part : parts_) {
      if (!part->isSuccess()) return false;
    }
    return true;
  }

  std::exception_ptr exception() const override {
    for (const auto& part : parts_) {
      if (std::exception_ptr error = part->exception()) return error;
    }
    return nullptr;
  }

  Tensors result() override {
    Tensors all;
    for (const auto& part : parts_) {
      const Tensors results = part->result();
      all.insert(all.end(), results.begin(), results.end());
    }
    return all;
  }

  // All are waited for, also where one fails: until then their tensors are in use.
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override {
    std::exception_ptr error;
    for (const auto& part : parts_) {
      try {
        part->wait(timeout);
      } catch (...) {
        if (!error) error = std::current_exception();
      }
    }
    if (error) std::rethrow_exception(error);
    return true;
  }

  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    const c10::TypePtr tensors = c10::ListType::create(c10::TensorType::get());
    c10::List<c10::intrusive_ptr<c10::ivalue::Future>> futures(c10::FutureType::create(tensors));
    for (const auto& part : parts_) futures.push_back(part->getFuture());
    return c10::collectAll(futures)->then(
        [](c10::ivalue::Future& all) -> c10::IValue {
          Tensors results;
          for (const c10::IValue& future : all.value().toListRef()) {
            const c10::IValue value = future.toFuture()->value();
            for (const at::Tensor& tensor : value.toTensorVector()) results.push_back(tensor);
          }
          return results;
        },
        tensors);
  }

 private:
  const std::vector<TorchGroup::WorkPointer> parts_;
};

}  // namespace

void TorchGroup::startCoalescing() { is_coalescing_.store(true); }

TorchGroup::WorkPointer TorchGroup::endCoalescing() {
  is_coalescing_.store(false);
  const std::lock_guard<std::mutex> lock(mutex_);
  return c10::make_intrusive<JoinedWork>(std::exchange(coalesced_, {}));
}

}  // namespace ciuic::torch_backend
