// SPDX-License-Identifier: Apache-2.0
// streams.cc: devices, streams and events of the fake CUDA runtime, where torch looks for those of
// CUDA. Streams have numbers: 0 is the legacy default one, the others are made when they are first
// asked for, and given to all in turn.

#include "streams.h"

#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <atomic>
#include <mutex>
#include <vector>

#include "memory.h"
#include "runtime.h"

namespace fake_gpu {

namespace {

constexpr int64_t kPool = 4;  // streams of a device beside the default one
constexpr size_t kMostDevices = 16;

std::mutex pool_mutex;
std::vector<void*> pools[kMostDevices];  // guarded by it
std::atomic<int64_t> next_of_pool{0};
thread_local int64_t current[kMostDevices] = {};

c10::Device device_of(c10::DeviceIndex index) { return {c10::DeviceType::CUDA, index}; }

}  // namespace

c10::Stream current_stream(c10::DeviceIndex device) {
  return c10::Stream(c10::Stream::UNSAFE, device_of(device), current[device]);
}

void* handle_of(const c10::Stream& stream) {
  if (stream.id() == 0) return nullptr;
  const std::lock_guard<std::mutex> lock(pool_mutex);
  std::vector<void*>& pool = pools[stream.device_index()];
  if (pool.empty()) {
    const OnDevice scope(stream.device_index());
    for (int64_t i = 0; i < kPool; ++i) pool.push_back(new_stream());
  }
  return pool[static_cast<size_t>(stream.id()) - 1];
}

namespace {

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return c10::DeviceType::CUDA; }

  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device before = getDevice();
    setDevice(device);
    return before;
  }
  c10::Device getDevice() const override {
    return device_of(static_cast<c10::DeviceIndex>(current_device()));
  }
  void setDevice(c10::Device device) const override {
    if (device.has_index()) set_device(device.index());
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override { setDevice(device); }
  c10::DeviceIndex deviceCount() const noexcept override {
    int count = 0;
    FAKE_GPU_CALL(int(int*), cudaGetDeviceCount, &count);
    return static_cast<c10::DeviceIndex>(count);
  }

  c10::Stream getStream(c10::Device device) const override {
    return current_stream(device.has_index() ? device.index() : getDevice().index());
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::DEFAULT, device);
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool /*is_high*/) const override {
    return c10::Stream(c10::Stream::UNSAFE, device, 1 + next_of_pool.fetch_add(1) % kPool);
  }
  c10::Stream getNewStream(c10::Device device, int /*priority*/) const override {
    return getStreamFromGlobalPool(device, false);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    const c10::Stream before = current_stream(stream.device_index());
    current[stream.device_index()] = stream.id();
    return before;
  }
  void* getStreamNativeHandle(const c10::Stream stream) const override { return handle_of(stream); }
  bool queryStream(const c10::Stream& stream) const override {
    static auto* const query = find<int(void*)>("cudaStreamQuery");
    const OnDevice scope(stream.device_index());
    return query(handle_of(stream)) == 0;
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    const OnDevice scope(stream.device_index());
    synchronize(handle_of(stream));
  }

  void record(void** event, const c10::Stream& stream, c10::DeviceIndex /*device*/,
              c10::EventFlag /*flag*/) const override {
    const OnDevice scope(stream.device_index());
    if (*event == nullptr) {
      FAKE_GPU_CALL(int(void**, unsigned), cudaEventCreateWithFlags, event, 2U);
    }
    FAKE_GPU_CALL(int(void*, void*), cudaEventRecord, *event, handle_of(stream));
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event == nullptr) return;
    const OnDevice scope(stream.device_index());
    FAKE_GPU_CALL(int(void*, void*, unsigned), cudaStreamWaitEvent, handle_of(stream), event, 0U);
  }
  bool queryEvent(void* event) const override {
    static auto* const query = find<int(void*)>("cudaEventQuery");
    return event == nullptr || query(event) == 0;
  }
  void synchronizeEvent(void* event) const override {
    if (event != nullptr) FAKE_GPU_CALL(int(void*), cudaEventSynchronize, event);
  }
  void destroyEvent(void* event, c10::DeviceIndex /*device*/) const noexcept override {
    if (event != nullptr) FAKE_GPU_CALL(int(void*), cudaEventDestroy, event);
  }

  void recordDataPtrOnStream(const c10::DataPtr& memory, const c10::Stream& stream) const override {
    used_in(memory, stream);
  }
};

const Guard guard;
const c10::impl::DeviceGuardImplRegistrar registrar(c10::DeviceType::CUDA, &guard);

}  // namespace

}  // namespace fake_gpu
