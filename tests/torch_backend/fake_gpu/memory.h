// SPDX-License-Identifier: Apache-2.0
// memory.h: tensors' memory on the fake GPUs.
//
// Memory belongs to the stream that was current when it was made. When it is freed it may be used
// anew, as with torch's allocator, behind what that stream has then, and those that used_in() has
// named; here it is overwritten there, so that who had needed it longer finds it out.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/Stream.h>

namespace fake_gpu {

c10::Allocator* allocator();

void used_in(const c10::DataPtr& memory, const c10::Stream& stream);

}  // namespace fake_gpu
