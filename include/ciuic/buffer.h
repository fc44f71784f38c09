// SPDX-License-Identifier: Apache-2.0
// buffer.h: what an operation reads and writes: contiguous elements of one dtype.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ciuic/dtype.h"

namespace ciuic {

enum class DeviceKind : uint8_t { kCpu = 0, kCuda = 1 };

struct Device {
  DeviceKind kind = DeviceKind::kCpu;
  int index = 0;
  bool operator==(const Device&) const = default;
};

// `count` elements at `data`, which may be null where count is 0. The memory belongs to the caller
// and lives until the Work that uses it has ended.
struct ConstBuffer {
  const void* data = nullptr;
  int64_t count = 0;
  DataType dtype = DataType::kFloat32;
  Device device = {};

  size_t bytes() const { return static_cast<size_t>(count) * size_of(dtype); }
};

struct MutableBuffer {
  void* data = nullptr;
  int64_t count = 0;
  DataType dtype = DataType::kFloat32;
  Device device = {};

  size_t bytes() const { return static_cast<size_t>(count) * size_of(dtype); }
  operator ConstBuffer() const { return {data, count, dtype, device}; }  // NOLINT
};

}  // namespace ciuic
