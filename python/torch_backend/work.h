// SPDX-License-Identifier: Apache-2.0
// work.h: an operation under way, as torch knows it.
//
// It ends in two steps: the core's operation ends, then end() copies back what is to be copied and
// completes the future. end() runs once, in whichever thread comes first: one in wait(), one that
// asks whether it is completed, or a thread of the core's for completions; never the one that makes
// operations progress, because callbacks of futures may run operations and wait for them.
//
// The tensors live until the operation has ended, also where the Work is dropped before.
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/util/SmallVector.h>
#include <c10/util/intrusive_ptr.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "ciuic/communicator.h"
#include "ciuic/work.h"

namespace ciuic::torch_backend {

using Tensors = std::vector<at::Tensor>;

// What an operation leaves to do when it has ended, and what lives until then.
struct Ending {
  c10::SmallVector<at::Tensor, 1> results;  // the future's value
  std::vector<Tensors> nested;              // its value instead, where this is not empty
  Tensors keep;
  std::function<void()> finish;  // where it has ended well; may be empty

  // Of the future.
  c10::IValue value() const;
  c10::TypePtr type() const;
  // Of result(), which has no lists of lists.
  Tensors tensors() const;
};

class TorchWork final : public c10d::Work {
 public:
  // With a title the profiler is told of it, and of its inputs.
  TorchWork(c10d::OpType type, uint64_t sequence, std::chrono::milliseconds timeout,
            const char* title, const std::optional<Tensors>& inputs)
      : c10d::Work(-1, type, title, inputs), sequence_(sequence), timeout_(timeout) {}
  ~TorchWork() override;

  // The operation has been started.
  void run(ciuic::Work work, Ending&& ending, std::weak_ptr<Communicator> communicator);
  // It has ended, well, in its caller's thread.
  void has_run(ciuic::Work work, Ending&& ending);

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  int sourceRank() const override;
  Tensors result() override;
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  uint64_t getSequencenumber() const override { return sequence_; }
  // Its memory may be kept a little longer, by those who look whether it lives (earlier.h).
  void release_resources() override {
    ending_ = {};
    future_.reset();
  }

 private:
  void end();
  void end_when_done();
  void wait_for_future();
  void complete(c10::ivalue::Future& future);

  std::weak_ptr<Communicator> communicator_;  // of one that is under way
  const uint64_t sequence_;
  const std::chrono::milliseconds timeout_;
  ciuic::Work work_;
  Ending ending_;
  std::atomic<bool> ended_{false};
  std::atomic<bool> has_future_{false};
  bool is_ending_ = false;      // guarded by mutex_, as are these
  bool is_registered_ = false;  // end() is called when the operation ends
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

}  // namespace ciuic::torch_backend
