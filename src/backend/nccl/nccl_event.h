// SPDX-License-Identifier: Apache-2.0
// nccl_event.h: events of CUDA's that are used again, since each one made costs a call of the
// driver's.
//
// Any thread. Whoever holds an event holds what it came from.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "ciuic/status.h"
#include "drivers/cuda/cuda.h"

namespace ciuic::backend {

// The moment at which a stream has done what was put there before.
struct NcclEvent {
  cuda::Event event = nullptr;
  std::atomic<bool> is_recorded{false};
};

class NcclEvents : public std::enable_shared_from_this<NcclEvents> {
 public:
  NcclEvents(const cuda::Functions* cuda, int device) : cuda_(*cuda), device_(device) {}
  ~NcclEvents();
  NcclEvents(const NcclEvents&) = delete;
  NcclEvents& operator=(const NcclEvents&) = delete;

  // One that is not recorded; the last that holds it gives it back.
  Result<std::shared_ptr<NcclEvent>> take();

 private:
  const cuda::Functions& cuda_;
  const int device_;
  std::mutex mutex_;  // guards what follows
  std::vector<std::unique_ptr<NcclEvent>> spares_;
};

}  // namespace ciuic::backend
