// SPDX-License-Identifier: Apache-2.0
// coalescing.cc: operations between startCoalescing() and endCoalescing(). Each is started at once,
// or, on a GPU, with the others; none is waited for. What they give is one Work, which ends when
// all have.

#include <ATen/core/ivalue_inl.h>
#include <c10/core/StreamGuard.h>

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

  void synchronize() override { wait(); }
  void blockCurrentStream() override { wait(); }

  // Not by then(): what collectAll() gives knows no streams.
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    const c10::TypePtr tensors = c10::ListType::create(c10::TensorType::get());
    c10::List<c10::intrusive_ptr<c10::ivalue::Future>> futures(c10::FutureType::create(tensors));
    std::vector<c10::Device> devices;
    for (const auto& part : parts_) {
      futures.push_back(part->getFuture());
      const auto& of_part = futures.get(futures.size() - 1)->devices();
      devices.insert(devices.end(), of_part.begin(), of_part.end());
    }
    auto joined = c10::make_intrusive<c10::ivalue::Future>(tensors, devices);
    c10::collectAll(futures)->addCallback([joined](c10::ivalue::Future& all) {
      try {
        complete(joined.get(), all.value());
      } catch (...) {
        joined->setError(std::current_exception());
      }
    });
    return joined;
  }

 private:
  // In streams that wait for those of all parts.
  static void complete(c10::ivalue::Future* joined, const c10::IValue& parts) {
    std::vector<c10::Stream> streams;
    for (const c10::Device& device : joined->devices()) streams.push_back(side_stream(device));
    const c10::MultiStreamGuard in_streams(streams);
    Tensors results;
    for (const c10::IValue& part : parts.toListRef()) {
      const auto future = part.toFuture();
      future->waitAndThrow();
      for (const at::Tensor& tensor : future->value().toTensorVector()) results.push_back(tensor);
    }
    joined->markCompleted(std::move(results));
  }

  const std::vector<TorchGroup::WorkPointer> parts_;
};

}  // namespace

void TorchGroup::startCoalescing() { is_coalescing_.store(true); }

TorchGroup::WorkPointer TorchGroup::endCoalescing() {
  is_coalescing_.store(false);
  std::vector<WorkPointer> parts;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    parts = std::exchange(coalesced_, {});
  }
  start_together();
  return c10::make_intrusive<JoinedWork>(std::move(parts));
}

}  // namespace ciuic::torch_backend
