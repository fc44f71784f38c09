// SPDX-License-Identifier: Apache-2.0
// nccl_event.cc: made where none is left over.

#include "backend/nccl/nccl_event.h"

#include <utility>

namespace ciuic::backend {

NcclEvents::~NcclEvents() {
  const cuda::DeviceScope scope(cuda_, device_);
  for (const auto& each : spares_) (void)cuda_.event_destroy(each->event);
}

Result<std::shared_ptr<NcclEvent>> NcclEvents::take() {
  std::unique_ptr<NcclEvent> taken;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!spares_.empty()) {
      taken = std::move(spares_.back());
      spares_.pop_back();
    }
  }
  if (taken == nullptr) {
    taken = std::make_unique<NcclEvent>();
    const cuda::DeviceScope scope(cuda_, device_);
    const int code = cuda_.event_create_with_flags(&taken->event, cuda::kDisableTiming);
    CIUIC_RETURN_IF_ERROR(cuda::error_of(cuda_, "cudaEventCreateWithFlags", code));
  }
  const auto give_back = [pool = shared_from_this()](NcclEvent* event) {
    event->is_recorded.store(false, std::memory_order_relaxed);
    std::lock_guard<std::mutex> lock(pool->mutex_);
    pool->spares_.emplace_back(event);
  };
  return std::shared_ptr<NcclEvent>(taken.release(), give_back);
}

}  // namespace ciuic::backend
