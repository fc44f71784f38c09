// SPDX-License-Identifier: Apache-2.0
// streams.h: torch's streams of the fake GPUs.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

namespace fake_gpu {

// In which the calling thread works on a device; the default stream where it has chosen none.
c10::Stream current_stream(c10::DeviceIndex device);

// The runtime's own.
void* handle_of(const c10::Stream& stream);

}  // namespace fake_gpu
