// SPDX-License-Identifier: Apache-2.0
// gpu_work.h: an operation on a GPU's memory that is under way, as torch knows it.
//
// wait() has the current stream wait for the result, as c10d's NCCL does, not the host; where
// tensors travel by way of the host, the host waits until all has arrived there. What is to be
// copied back is put into the stream that first waits, or into one of torch's own where nobody
// does; other streams then wait for that copy.
//
// The tensors live until a stream waits for them, which torch's allocator is told of, or until the
// operation has ended.
#pragma once

#include <c10/core/Event.h>

#include <memory>
#include <mutex>
#include <optional>

#include "gpu.h"
#include "work.h"

namespace ciuic::torch_backend {

class GpuWork final : public c10d::Work {
 public:
  using Milliseconds = std::chrono::milliseconds;

  // Without a title the profiler is not told of it.
  GpuWork(c10d::OpType type, uint64_t sequence, Milliseconds timeout, c10::Device device,
          Ending&& ending, const char* title, const std::optional<Tensors>& inputs)
      : c10d::Work(-1, type, title, inputs),
        sequence_(sequence),
        timeout_(timeout),
        device_(device),
        ending_(std::move(ending)) {}
  ~GpuWork() override;

  // The operation has been started, which may be together with others. `wait_follows`: its caller
  // waits for it at once.
  void start(ciuic::Work work, std::weak_ptr<Communicator> communicator, bool wait_follows);

  // Whether something is to be copied back when it has ended.
  bool copies_back() const { return static_cast<bool>(ending_.finish); }

  // Whether the device has done all, what is copied back with it.
  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  int sourceRank() const override { return work_.source(); }
  Tensors result() override { return ending_.tensors(); }
  bool wait(Milliseconds timeout = kNoTimeout) override;
  void synchronize() override { wait(); }
  void blockCurrentStream() override { wait(); }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  uint64_t getSequencenumber() const override { return sequence_; }
  void release_resources() override;

 private:
  void check_started() const;
  std::optional<Status> order(const c10::Stream& stream);
  std::exception_ptr end_in(const c10::Stream& stream, const Status& status);
  void copy_back_in(const c10::Stream& stream);
  void hand_over_to(const c10::Stream& stream);
  void end_when_done();
  void end_by_itself();
  void complete(const c10::Stream& stream, const Status& status);
  void wait_for_future();

  const uint64_t sequence_;
  const Milliseconds timeout_;
  const c10::Device device_;
  std::weak_ptr<Communicator> communicator_;
  mutable ciuic::Work work_;
  bool is_started_ = false;
  Ending ending_;

  std::mutex copying_;                // before mutex_; guards what of ending_ is used up, and this:
  bool is_handed_over_ = false;       // torch's allocator knows who waits
  std::optional<c10::Event> copied_;  // after the copies back, where there are any

  // Guarded by mutex_.
  bool is_registered_ = false;  // end_by_itself() is called when the operation ends
  bool is_completing_ = false;  // somebody is at completing the future
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

}  // namespace ciuic::torch_backend
