// SPDX-License-Identifier: Apache-2.0
// copies.cc: CUDA's copies and fills, and kernels of tests; each checks what its pointers are.

#include <cstring>
#include <utility>
#include <vector>

#include "cudart/fake_cuda.h"
#include "cudart/machine.h"

using namespace ciuic::fake_cuda;  // NOLINT: the functions have C's names

namespace {

// One or more rows.
struct Copy {
  Place target;
  Place source;
  size_t target_pitch = 0;
  size_t source_pitch = 0;
  size_t width = 0;
  size_t height = 1;

  size_t span(size_t pitch) const { return height == 0 ? 0 : (height - 1) * pitch + width; }
  bool is_empty() const { return width == 0 || height == 0; }

  void run() const {
    for (size_t row = 0; row < height; ++row) {
      std::memmove(target.bytes + row * target_pitch, source.bytes + row * source_pitch, width);
    }
  }
};

int check(const Copy& copy, int kind) {
  if (kind < kHostToHost || kind > kByPointers) return kInvalidMemcpyDirection;
  const bool to_device = kind == kHostToDevice || kind == kDeviceToDevice;
  const bool from_device = kind == kDeviceToHost || kind == kDeviceToDevice;
  const bool fits = kind == kByPointers ||
                    (copy.target.is_device == to_device && copy.source.is_device == from_device);
  const bool is_inside = copy.span(copy.target_pitch) <= copy.target.room &&
                         copy.span(copy.source_pitch) <= copy.source.room;
  return fits && is_inside ? kSuccess : kInvalidValue;
}

bool is_pageable(const Place& place) { return !place.is_device && !place.is_pinned; }

// As CUDA does it: from pageable memory the bytes are taken at the call, to pageable memory it
// returns when they are there, and otherwise at once.
int push(Machine& machine, Copy copy, int kind, void* handle, bool waits) {
  const auto stream = machine.streams.find(handle, current_device);
  if (stream == nullptr) return kInvalidResourceHandle;
  if (copy.is_empty()) return kSuccess;
  const int code = check(copy, kind);
  if (code != kSuccess) return code;
  std::vector<std::byte> taken;
  if (is_pageable(copy.source)) {
    taken.resize(copy.span(copy.source_pitch));
    for (size_t row = 0; row < copy.height; ++row) {
      const size_t offset = row * copy.source_pitch;
      std::memcpy(taken.data() + offset, copy.source.bytes + offset, copy.width);
    }
  }
  auto run = [copy, taken = std::move(taken)]() mutable {
    if (!taken.empty()) copy.source.bytes = taken.data();
    copy.run();
  };
  const Point point = machine.streams.push(
      stream, {.run = std::move(run), .delay_us = machine.settings.delay_us, .after = {}});
  if (waits || is_pageable(copy.target)) machine.streams.wait({point});
  return kSuccess;
}

// `run` writes `bytes` to device memory.
template <typename Write>
int push_write(Machine& machine, void* pointer, size_t bytes, void* handle, int64_t delay_us,
               bool waits, Write write) {
  const auto stream = machine.streams.find(handle, current_device);
  if (stream == nullptr) return kInvalidResourceHandle;
  if (bytes == 0) return kSuccess;
  const Place place = machine.memory.find(pointer);
  if (!place.is_device || bytes > place.room) return kInvalidValue;
  const Point point =
      machine.streams.push(stream, {.run = [=, write = std::move(write)] { write(place.bytes); },
                                    .delay_us = delay_us,
                                    .after = {}});
  if (waits) machine.streams.wait({point});
  return kSuccess;
}

Copy one_row(Machine& machine, void* target, const void* source, size_t bytes) {
  return {.target = machine.memory.find(target),
          .source = machine.memory.find(source),
          .target_pitch = bytes,
          .source_pitch = bytes,
          .width = bytes};
}

}  // namespace

FAKE_API int cudaMemcpy(void* target, const void* source, size_t bytes, int kind) {
  return call("cudaMemcpy", [&](Machine& machine) {
    return push(machine, one_row(machine, target, source, bytes), kind, nullptr, true);
  });
}

FAKE_API int cudaMemcpyAsync(void* target, const void* source, size_t bytes, int kind,
                             void* stream) {
  return call("cudaMemcpyAsync", [&](Machine& machine) {
    return push(machine, one_row(machine, target, source, bytes), kind, stream, false);
  });
}

FAKE_API int cudaMemcpy2DAsync(void* target, size_t target_pitch, const void* source,
                               size_t source_pitch, size_t width, size_t height, int kind,
                               void* stream) {
  return call("cudaMemcpy2DAsync", [&](Machine& machine) -> int {
    if (width > target_pitch || width > source_pitch) return 12;  // cudaErrorInvalidPitchValue
    Copy copy = one_row(machine, target, source, width);
    copy.target_pitch = target_pitch;
    copy.source_pitch = source_pitch;
    copy.height = height;
    return push(machine, copy, kind, stream, false);
  });
}

static auto filler(int value, size_t bytes) {
  return [value, bytes](std::byte* memory) { std::memset(memory, value, bytes); };
}

FAKE_API int cudaMemset(void* memory, int value, size_t bytes) {
  return call("cudaMemset", [&](Machine& machine) {
    return push_write(machine, memory, bytes, nullptr, machine.settings.delay_us, true,
                      filler(value, bytes));
  });
}

FAKE_API int cudaMemsetAsync(void* memory, int value, size_t bytes, void* stream) {
  return call("cudaMemsetAsync", [&](Machine& machine) {
    return push_write(machine, memory, bytes, stream, machine.settings.delay_us, false,
                      filler(value, bytes));
  });
}

FAKE_API int ciuic_fake_fill(void* stream, void* device_pointer, size_t bytes, int byte_value,
                             int64_t delay_us) {
  return call("ciuic_fake_fill", [&](Machine& machine) {
    return push_write(machine, device_pointer, bytes, stream, delay_us, false,
                      filler(byte_value, bytes));
  });
}

FAKE_API int ciuic_fake_store(void* stream, void* device_pointer, const void* host_bytes,
                              size_t bytes, int64_t delay_us) {
  return call("ciuic_fake_store", [&](Machine& machine) {
    const auto* begin = static_cast<const std::byte*>(host_bytes);
    return push_write(machine, device_pointer, bytes, stream, delay_us, false,
                      [taken = std::vector<std::byte>(begin, begin + bytes)](std::byte* memory) {
                        std::memcpy(memory, taken.data(), taken.size());
                      });
  });
}
