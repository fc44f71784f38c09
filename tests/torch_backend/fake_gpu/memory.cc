// SPDX-License-Identifier: Apache-2.0
// memory.cc: blocks, and what becomes of those that are freed.

#include "memory.h"

#include <mutex>
#include <set>
#include <utility>

#include "runtime.h"
#include "streams.h"

namespace fake_gpu {

namespace {

constexpr int kPoison = 0x5A;

struct Block {
  void* data = nullptr;
  size_t bytes = 0;
  int device = 0;
  std::mutex mutex;
  std::set<void*> streams;  // that use it
};

// Where memory is freed: behind the streams that use it.
void* freeing_stream(int device) {
  static std::mutex mutex;
  static void* streams[16] = {};
  const std::lock_guard<std::mutex> lock(mutex);
  if (streams[device] == nullptr) streams[device] = new_stream();
  return streams[device];
}

void free_block(void* context) {
  const std::unique_ptr<Block> block(static_cast<Block*>(context));
  const OnDevice scope(block->device);
  void* const stream = freeing_stream(block->device);
  for (void* user : block->streams) join(user, stream);
  FAKE_GPU_CALL(int(void*, void*, size_t, int, int64_t), ciuic_fake_fill, stream, block->data,
                block->bytes, kPoison, int64_t{0});
  FAKE_GPU_CALL(int(void*, void*), cudaFreeAsync, block->data, stream);
}

class Allocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    const int device = current_device();
    auto block = std::make_unique<Block>();
    block->bytes = std::max<size_t>(bytes, 1);
    block->device = device;
    block->streams.insert(handle_of(current_stream(static_cast<c10::DeviceIndex>(device))));
    FAKE_GPU_CALL(int(void**, size_t), cudaMalloc, &block->data, block->bytes);
    void* const data = block->data;
    const c10::Device place(c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(device));
    return {data, block.release(), &free_block, place};
  }
  void copy_data(void* /*target*/, const void* /*source*/, size_t /*count*/) const override {
    TORCH_CHECK(false, "copies go by way of copy_()");
  }
};

}  // namespace

c10::Allocator* allocator() {
  static Allocator the_one;
  return &the_one;
}

void used_in(const c10::DataPtr& memory, const c10::Stream& stream) {
  if (memory.get_deleter() != &free_block) return;
  auto* const block = static_cast<Block*>(memory.get_context());
  const std::lock_guard<std::mutex> lock(block->mutex);
  block->streams.insert(handle_of(stream));
}

}  // namespace fake_gpu
