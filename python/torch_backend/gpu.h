// SPDX-License-Identifier: Apache-2.0
// gpu.h: CUDA's devices and streams, as torch has them. Nothing here is linked with CUDA: torch's
// own part for it, where there is one, is called by way of c10's table of devices.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <span>

#include "ciuic/call.h"
#include "ciuic/options.h"

namespace ciuic::torch_backend {

// Where a tensor's memory lies, as the core has it.
inline Device place_of(const at::Tensor& tensor) {
  if (tensor.is_cpu()) [[likely]]
    return {};
  return {DeviceKind::kCuda, tensor.device().index()};
}

// Whether calls are of a GPU's memory. That they all are is for the core to say.
inline bool is_on_gpu(const Call& call) {
  return call.input.device.kind != DeviceKind::kCpu || call.output.device.kind != DeviceKind::kCpu;
}

inline c10::Device gpu_of(const Call& call) {
  const Device& device =
      call.input.device.kind != DeviceKind::kCpu ? call.input.device : call.output.device;
  return {c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(device.index)};
}

inline c10::impl::VirtualGuardImpl cuda() {
  return c10::impl::VirtualGuardImpl(c10::DeviceType::CUDA);
}

// The stream in which this thread works on a device.
inline c10::Stream current_stream(c10::Device device) { return cuda().getStream(device); }

// One in which nobody works, unless others have been given it, too: there are a few.
inline c10::Stream side_stream(c10::Device device) {
  return cuda().getStreamFromGlobalPool(device);
}

// A stream, as the core has it.
inline Stream handle_of(const c10::Stream& stream) {
  return {cuda().getStreamNativeHandle(stream), stream.device_index()};
}

}  // namespace ciuic::torch_backend
