// SPDX-License-Identifier: Apache-2.0
// pinned_memory.h: host memory that a GPU copies to and from by itself, in blocks that are used
// again, and the streams and events by which it does.
//
// One thread at a time, but bytes().
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <memory>
#include <vector>

#include "ciuic/status.h"
#include "drivers/cuda/cuda.h"

namespace ciuic::backend {

// An event of CUDA's.
class CudaEvent {
 public:
  explicit CudaEvent(const cuda::Functions* cuda) : cuda_(cuda) {}
  ~CudaEvent();
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;

  Status record(cuda::Stream stream, int device);  // the device is current, and the stream's
  Status wait_on(cuda::Stream stream) const;       // ok where nothing was recorded
  bool is_done() const;                            // likewise

 private:
  const cuda::Functions* cuda_;
  cuda::Event event_ = nullptr;
  int device_ = -1;  // of the event
};

// Memory, and when the device has last copied from it.
struct PinnedBlock {
  std::byte* data = nullptr;
  size_t bytes = 0;
  std::shared_ptr<CudaEvent> free;
  int users = 0;  // that have it, or wait for it in turn
};

class PinnedMemory {
 public:
  // What is kept for the next use is `most_kept` bytes at most.
  PinnedMemory(const cuda::Functions* cuda, size_t most_kept)
      : cuda_(cuda), most_kept_(most_kept) {}
  ~PinnedMemory() { clear(); }
  void clear();    // nothing copies any more
  void abandon();  // somebody may read and write it as long as the process lives

  // A block that nobody uses, and that no copy reads. kResource.
  Result<PinnedBlock*> take(size_t bytes);

  // Its user is done with it; a copy from it may be under way.
  void give_back(PinnedBlock* block);

  size_t bytes() const { return bytes_.load(std::memory_order_relaxed); }

 private:
  void free(PinnedBlock* block);

  const cuda::Functions* cuda_;
  const size_t most_kept_;
  std::atomic<size_t> bytes_{0};
  std::vector<std::unique_ptr<PinnedBlock>> blocks_;
};

// The streams of a device: for each lane one out of it, and one into it. They wait for no others,
// and none for them.
class CopyStreams {
 public:
  static constexpr size_t kLanes = 5;

  static Result<std::unique_ptr<CopyStreams>> create(const cuda::Functions* cuda, int device);
  ~CopyStreams();  // waits for what is under way
  CopyStreams(const CopyStreams&) = delete;
  CopyStreams& operator=(const CopyStreams&) = delete;

  int device() const { return device_; }
  cuda::Stream out(size_t lane) const { return out_[lane]; }
  cuda::Stream in(size_t lane) const { return in_[lane]; }

 private:
  CopyStreams(const cuda::Functions* cuda, int device) : cuda_(cuda), device_(device) {}

  const cuda::Functions* cuda_;
  const int device_;
  std::array<cuda::Stream, kLanes> out_{};
  std::array<cuda::Stream, kLanes> in_{};
};

}  // namespace ciuic::backend
