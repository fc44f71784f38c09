// SPDX-License-Identifier: Apache-2.0
// copies.cc: CUDA's copies and fills, and kernels of tests; each checks what its pointers are.

#include <cstring>
#include <utility>
#include <vector>

#include "cudart/fake_cuda.h"
#include "cudart/machine.h"

using namespace ciuic::fake_cuda;  // NOLINT: the functions have C's names

namespace {

struct Copy {
  Place target;
  Place source;
  size_t bytes = 0;
};

int check(const Copy& copy, int kind) {
  if (kind < kHostToHost || kind > kByPointers) return kInvalidMemcpyDirection;
  const bool to_device = kind == kHostToDevice || kind == kDeviceToDevice;
  const bool from_device = kind == kDeviceToHost || kind == kDeviceToDevice;
  const bool fits = kind == kByPointers ||
                    (copy.target.is_device == to_device && copy.source.is_device == from_device);
  const bool is_inside = copy.bytes <= copy.target.room && copy.bytes <= copy.source.room;
  return fits && is_inside ? kSuccess : kInvalidValue;
}

bool is_pageable(const Place& place) { return !place.is_device && !place.is_pinned; }

// As CUDA does it: from pageable memory the bytes are taken at the call, to pageable memory it
// returns when they are there, and otherwise at once.
int push(Machine& machine, Copy copy, int kind, void* handle, bool waits) {
  const auto stream = machine.streams.find(handle, current_device);
  if (stream == nullptr) return kInvalidResourceHandle;
  if (copy.bytes == 0) return kSuccess;
  const int code = check(copy, kind);
  if (code != kSuccess) return code;
  std::vector<std::byte> taken;
  if (is_pageable(copy.source)) {
    taken.assign(copy.source.bytes, copy.source.bytes + copy.bytes);
  }
  auto run = [copy, taken = std::move(taken)] {
    const std::byte* source = taken.empty() ? copy.source.bytes : taken.data();
    std::memmove(copy.target.bytes, source, copy.bytes);
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

Copy between(Machine& machine, void* target, const void* source, size_t bytes) {
  return {
      .target = machine.memory.find(target), .source = machine.memory.find(source), .bytes = bytes};
}

}  // namespace

FAKE_API int cudaMemcpy(void* target, const void* source, size_t bytes, int kind) {
  return call("cudaMemcpy", [&](Machine& machine) {
    return push(machine, between(machine, target, source, bytes), kind, nullptr, true);
  });
}

FAKE_API int cudaMemcpyAsync(void* target, const void* source, size_t bytes, int kind,
                             void* stream) {
  return call("cudaMemcpyAsync", [&](Machine& machine) {
    return push(machine, between(machine, target, source, bytes), kind, stream, false);
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
