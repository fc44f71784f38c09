// SPDX-License-Identifier: Apache-2.0
// pinned_memory.cc: blocks, events and streams by the CUDA runtime.

#include "backend/staged/pinned_memory.h"

#include <algorithm>

namespace ciuic::backend {

CudaEvent::~CudaEvent() {
  if (event_ != nullptr) (void)cuda_->event_destroy(event_);
}

Status CudaEvent::record(cuda::Stream stream, int device) {
  if (event_ != nullptr && device_ != device) {
    (void)cuda_->event_destroy(event_);  // who waits for it goes on to do so
    event_ = nullptr;
  }
  if (event_ == nullptr) {
    CIUIC_RETURN_IF_ERROR(cuda::error_of(
        *cuda_, "cudaEventCreate", cuda_->event_create_with_flags(&event_, cuda::kDisableTiming)));
    device_ = device;
  }
  return cuda::error_of(*cuda_, "cudaEventRecord", cuda_->event_record(event_, stream));
}

Status CudaEvent::wait_on(cuda::Stream stream) const {
  if (event_ == nullptr) return {};
  return cuda::error_of(*cuda_, "cudaStreamWaitEvent", cuda_->stream_wait_event(stream, event_, 0));
}

bool CudaEvent::is_done() const {
  if (event_ == nullptr || cuda_->event_query(event_) != cuda::kNotReady) return true;
  (void)cuda_->get_last_error();  // else the caller's next look at it would find this
  return false;
}

void PinnedMemory::clear() {
  for (const std::unique_ptr<PinnedBlock>& block : blocks_) free(block.get());
  blocks_.clear();
}

void PinnedMemory::free(PinnedBlock* block) {
  (void)cuda_->free_host(block->data);
  bytes_.fetch_sub(block->bytes, std::memory_order_relaxed);
}

void PinnedMemory::abandon() {
  static auto* const abandoned = new std::vector<std::unique_ptr<PinnedBlock>>;
  for (std::unique_ptr<PinnedBlock>& block : blocks_) abandoned->push_back(std::move(block));
  blocks_.clear();
}

Result<PinnedBlock*> PinnedMemory::take(size_t bytes) {
  for (const std::unique_ptr<PinnedBlock>& block : blocks_) {
    const bool fits = block->bytes >= bytes && block->bytes / 4 <= bytes;
    if (block->users > 0 || !fits || !block->free->is_done()) continue;
    block->users = 1;
    return block.get();
  }
  constexpr size_t kLeastBytes = 4096;
  auto block = std::make_unique<PinnedBlock>();
  block->bytes = std::max(bytes, kLeastBytes);
  block->free = std::make_shared<CudaEvent>(cuda_);
  block->users = 1;
  void* data = nullptr;
  CIUIC_RETURN_IF_ERROR(cuda::error_of(
      *cuda_, "cudaHostAlloc", cuda_->host_alloc(&data, block->bytes, cuda::kHostAllocPortable)));
  block->data = static_cast<std::byte*>(data);
  bytes_.fetch_add(block->bytes, std::memory_order_relaxed);
  blocks_.push_back(std::move(block));
  return blocks_.back().get();
}

void PinnedMemory::give_back(PinnedBlock* block) {
  if (--block->users > 0 || bytes() <= most_kept_) return;
  std::erase_if(blocks_, [this](const std::unique_ptr<PinnedBlock>& held) {
    const bool goes = held->users == 0 && bytes() > most_kept_ && held->free->is_done();
    if (goes) free(held.get());
    return goes;
  });
}

Result<std::unique_ptr<CopyStreams>> CopyStreams::create(const cuda::Functions* cuda, int device) {
  const cuda::DeviceScope scope(*cuda, device);
  std::unique_ptr<CopyStreams> streams(new CopyStreams(cuda, device));
  for (auto* all : {&streams->out_, &streams->in_}) {
    for (cuda::Stream& stream : *all) {
      CIUIC_RETURN_IF_ERROR(
          cuda::error_of(*cuda, "cudaStreamCreateWithFlags",
                         cuda->stream_create_with_flags(&stream, cuda::kNonBlocking)));
    }
  }
  return streams;
}

CopyStreams::~CopyStreams() {
  const cuda::DeviceScope scope(*cuda_, device_);
  for (const auto* all : {&out_, &in_}) {
    for (const cuda::Stream stream : *all) {
      if (stream == nullptr) continue;
      (void)cuda_->stream_synchronize(stream);
      (void)cuda_->stream_destroy(stream);
    }
  }
}

}  // namespace ciuic::backend
