// SPDX-License-Identifier: Apache-2.0
// nccl_comm.h: a communicator of NCCL's, and the stream of the device on which its calls run.
//
// It never blocks: what a call has begun is asked for by look(). Every call of NCCL's is made under
// a lock of its own, so that abort() frees nothing that another thread is using.
//
// Any thread, any device current.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>

#include "base/clock.h"
#include "ciuic/dtype.h"
#include "ciuic/status.h"
#include "drivers/cuda/cuda.h"
#include "drivers/nccl/nccl.h"

namespace ciuic::backend {

class NcclComm {
 public:
  struct Options {
    const cuda::Functions* cuda = nullptr;
    const nccl::Library* nccl = nullptr;  // not for one rank
    int device = 0;
    int rank = 0;
    int size = 1;
    int traffic_class = nccl::kUndefined;
  };

  // The stream alone.
  static Result<std::unique_ptr<NcclComm>> create(const Options& options);
  ~NcclComm();  // abort()
  NcclComm(const NcclComm&) = delete;
  NcclComm& operator=(const NcclComm&) = delete;

  const Options& options() const { return options_; }
  cuda::Stream stream() const { return stream_; }

  // Begins to make NCCL's communicator, with all ranks; look() tells when it is there.
  Status begin(const nccl::UniqueId& id);

  struct State {
    bool in_progress = false;  // what was called has not begun on the device
    Status error;
    bool is_remote = false;  // another rank has failed
  };
  State look();

  // Makes calls of NCCL's as one group. `calls` returns the first error.
  Status issue(const std::function<Status(nccl::Comm)>& calls);

  // The op by which floats are averaged: those of each rank times 1/size, added.
  Result<int> average(DataType dtype);

  // Ends what is under way on the device. May take as long as NCCL does. Idempotent.
  void abort();
  bool is_aborted() const { return aborts_.load(std::memory_order_acquire); }

  // Once nothing is under way: frees it, where the other ranks do likewise; else aborts.
  void close(TimeNs deadline);

 private:
  using Lock = std::unique_lock<std::mutex>;

  explicit NcclComm(const Options& options) : options_(options) {}
  Status aborted() const;
  Status error(const char* what, int code) const;

  const Options options_;
  cuda::Stream stream_ = nullptr;
  std::atomic<bool> aborts_{false};
  std::mutex mutex_;  // guards what follows
  nccl::Comm comm_ = nullptr;
  std::array<int, kDataTypes> averages_{};  // made for it; 0: not yet
};

}  // namespace ciuic::backend
