// SPDX-License-Identifier: Apache-2.0
// hooks.cc: torch's engine for gradients asks here whether there is a GPU, and for its streams.

#include <ATen/detail/CUDAHooksInterface.h>

#include "runtime.h"

namespace fake_gpu {

struct Hooks final : at::CUDAHooksInterface {
  explicit Hooks(at::CUDAHooksArgs /*unused*/) {}
  void init() const override {}
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasCUDA() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex /*device*/) const override { return true; }
  c10::DeviceIndex deviceCount() const override {
    int count = 0;
    FAKE_GPU_CALL(int(int*), cudaGetDeviceCount, &count);
    return static_cast<c10::DeviceIndex>(count);
  }
  void setCurrentDevice(c10::DeviceIndex device) const override { set_device(device); }
  c10::DeviceIndex getCurrentDevice() const override {
    return static_cast<c10::DeviceIndex>(current_device());
  }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override {
    const c10::DeviceIndex before = getCurrentDevice();
    set_device(device);
    return before;
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override {
    return exchangeDevice(device);
  }
};

}  // namespace fake_gpu

namespace at {

C10_REGISTER_CLASS(CUDAHooksRegistry, CUDAHooks, fake_gpu::Hooks)

}  // namespace at
