// SPDX-License-Identifier: Apache-2.0
// group.h: a group of ranks, as torch knows it: c10d's Backend on one Communicator. Start here.
//
// Operations that are not asynchronous (asyncOp is false) run on the caller's thread, to their end;
// the others return at once. On a GPU the end is that the current stream waits. Tensors may have
// any strides; they live until the operation has ended. Any thread may call, under the rule of
// communicator.h on the order of calls.
//
// A call that cannot be is refused by an exception, and nothing was sent; what goes wrong later is
// a DistBackendError, raised by blocking calls and by wait().
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "ciuic/communicator.h"
#include "earlier.h"
#include "gpu_work.h"
#include "work.h"

namespace ciuic::torch_backend {

// The highest tag of a user's message; those above are the backend's own.
inline constexpr int kLastUserTag = kMaxTag - 4096;

inline bool is_message(c10d::OpType type) {
  return type == c10d::OpType::SEND || type == c10d::OpType::RECV ||
         type == c10d::OpType::RECVANYSOURCE;
}

class TorchGroup final : public c10d::Backend {
 public:
  struct Options final : c10d::Backend::Options {
    Options() : c10d::Backend::Options("ciuic") {}
    std::string carrier = "auto";  // CommunicatorOptions::backend
    int device = -1;               // CommunicatorOptions::device
  };
  using WorkPointer = c10::intrusive_ptr<c10d::Work>;
  using StorePointer = c10::intrusive_ptr<c10d::Store>;
  using OptionsPointer = c10::intrusive_ptr<c10d::Backend::Options>;
  using Milliseconds = std::chrono::milliseconds;
  using TensorLists = std::vector<Tensors>;

  // Joins the group: blocks until all ranks have, for options->timeout at most.
  static c10::intrusive_ptr<TorchGroup> join(const StorePointer& store, int rank, int size,
                                             c10::intrusive_ptr<Options> options);
  TorchGroup(std::unique_ptr<Communicator> communicator, c10::intrusive_ptr<Options> options);
  ~TorchGroup() override;

  // Closes all groups of the process, as its end does.
  static void close_all();

  // ---- what torch asks about, and life cycle (group.cc) ----
  const std::string getBackendName() const override { return "ciuic"; }
  OptionsPointer getBackendOptions() override { return options_; }
  bool supportsSplitting() const override { return true; }
  bool supportsShrinking() const override { return true; }
  // Where it matters: elsewhere single calls are as good, and give a Work each.
  bool supportsCoalescing() const override { return is_by_nccl_; }
  void setTimeout(Milliseconds timeout) override;
  void abort() override;
  void shutdown() override;
  c10d::ErrorType getError() override;
  c10::intrusive_ptr<c10d::Backend> split(const StorePointer& store, const std::vector<int>& ranks,
                                          const OptionsPointer& options) override;
  c10::intrusive_ptr<c10d::Backend> merge(const StorePointer& store, const OptionsPointer& options,
                                          const int& rank, const int& size) override;
  c10::intrusive_ptr<c10d::Backend> shrink(const std::vector<int64_t>& ranks_to_exclude, int flags,
                                           const OptionsPointer& options) override;
  void setSequenceNumberForGroup() override {}  // all ranks count from 0
  uint64_t getSequenceNumberForGroup() override { return sequence_.load(); }

  // ---- memory that the ranks of a host can read where it lies (group.cc) ----
  bool supportsTensorAlloc(c10::DeviceIndex /*device*/) override { return true; }
  at::Tensor allocateTensor(long size, at::TensorOptions options) override;
  std::unordered_map<std::string, uint64_t> getMemoryStats() override;

  // ---- reductions (reducing.cc) ----
  WorkPointer allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPointer allreduce_coalesced(Tensors& tensors,
                                  const c10d::AllreduceCoalescedOptions& options) override;
  WorkPointer reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  WorkPointer reduce_scatter(Tensors& outputs, TensorLists& inputs,
                             const c10d::ReduceScatterOptions& options) override;
  WorkPointer _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                   const c10d::ReduceScatterOptions& options) override;
  WorkPointer reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                              const c10d::ReduceScatterOptions& options) override;

  // ---- sparse tensors (sparse.cc) ----
  WorkPointer allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) override;

  // ---- one to all, and all to one (gathering.cc, scattering.cc) ----
  WorkPointer allgather(TensorLists& outputs, Tensors& inputs,
                        const c10d::AllgatherOptions& options) override;
  WorkPointer _allgather_base(at::Tensor& output, at::Tensor& input,
                              const c10d::AllgatherOptions& options) override;
  WorkPointer allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                                  const c10d::AllgatherOptions& options) override;
  WorkPointer allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                              const c10d::AllgatherOptions& options) override;
  WorkPointer gather(TensorLists& outputs, Tensors& inputs,
                     const c10d::GatherOptions& options) override;
  WorkPointer broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  WorkPointer scatter(Tensors& outputs, TensorLists& inputs,
                      const c10d::ScatterOptions& options) override;
  WorkPointer alltoall(Tensors& outputs, Tensors& inputs,
                       const c10d::AllToAllOptions& options) override;
  WorkPointer alltoall_base(at::Tensor& output, at::Tensor& input,
                            std::vector<int64_t>& output_rows, std::vector<int64_t>& input_rows,
                            const c10d::AllToAllOptions& options) override;

  // ---- messages, barriers, calls that belong together (messages.cc, coalescing.cc) ----
  WorkPointer send(Tensors& tensors, int destination, int tag) override;
  WorkPointer recv(Tensors& tensors, int source, int tag) override;
  WorkPointer recvAnysource(Tensors& tensors, int tag) override;
  WorkPointer barrier(const c10d::BarrierOptions& options) override;
  void monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) override;
  void startCoalescing() override;
  WorkPointer endCoalescing() override;

 private:
  // What torch says of a call, beside its tensors.
  struct Manner {
    c10d::OpType type;
    const char* title;  // the profiler's
    bool is_async;
    Milliseconds timeout;
    std::span<const at::Tensor> inputs;  // the profiler's
  };

  using GpuWorkPointer = c10::intrusive_ptr<GpuWork>;

  // Calls of a GPU's memory that wait for endCoalescing().
  struct Together {
    std::vector<Call> calls;
    std::vector<GpuWorkPointer> works;
    Milliseconds timeout{0};
  };

  WorkPointer launch(std::span<const Call> calls, const Manner& manner, Ending&& ending);
  WorkPointer launch(const Call& call, const Manner& manner, Ending&& ending) {
    return launch(std::span(&call, 1), manner, std::move(ending));
  }
  c10::intrusive_ptr<TorchWork> new_work(const Manner& manner, Milliseconds timeout);
  WorkPointer launch_on_gpu(std::span<const Call> calls, const Manner& manner, Ending&& ending);
  GpuWorkPointer new_gpu_work(const Manner& manner, Milliseconds timeout, c10::Device device,
                              Ending&& ending);
  void start_on_gpu(std::span<const Call> calls, std::span<const GpuWorkPointer> works,
                    Milliseconds timeout, bool wait_follows);
  void start_together();
  c10::intrusive_ptr<Options> options_from(const OptionsPointer& given) const;
  WorkPointer receive(Tensors& tensors, int source, int tag, const char* title);
  Milliseconds effective(Milliseconds timeout) const;
  int check_peer(const char* operation, int64_t rank) const;
  void await_all(Milliseconds timeout, bool wait_all_ranks, const OperationOptions& patient);
  void await_release(Milliseconds timeout, const OperationOptions& patient);

  const c10::intrusive_ptr<Options> options_;
  const std::shared_ptr<Communicator> communicator_;
  const bool is_by_nccl_;  // CUDA tensors are carried by NCCL
  std::atomic<int64_t> timeout_ms_;
  std::atomic<uint64_t> sequence_{0};
  std::atomic<bool> is_coalescing_{false};
  Earlier earlier_;
  std::mutex mutex_;  // guards what follows
  std::vector<WorkPointer> coalesced_;
  Together together_;
  uint32_t sparse_calls_ = 0;
};

}  // namespace ciuic::torch_backend
