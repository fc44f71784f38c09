// SPDX-License-Identifier: Apache-2.0
// codes.h: CUDA's values, as far as the fake returns or takes them.
#pragma once

namespace ciuic::fake_cuda {

enum Code : int {
  kSuccess = 0,
  kInvalidValue = 1,
  kMemoryAllocation = 2,
  kInitializationError = 3,
  kInvalidMemcpyDirection = 21,
  kInsufficientDriver = 35,
  kNoDevice = 100,
  kInvalidDevice = 101,
  kInvalidResourceHandle = 400,
  kNotReady = 600,
  kNotPermitted = 800,
};

enum CopyKind : int {
  kHostToHost = 0,
  kHostToDevice = 1,
  kDeviceToHost = 2,
  kDeviceToDevice = 3,
  kByPointers = 4,
};

inline constexpr unsigned kNonBlocking = 1;
inline constexpr int kVersion = 13000;

}  // namespace ciuic::fake_cuda
