// SPDX-License-Identifier: Apache-2.0
// codes.h: NCCL's values, and the text of the last error.
#pragma once

#include <string>

namespace ciuic::fake_nccl {

enum Code : int {
  kSuccess = 0,
  kUnhandledCudaError = 1,
  kSystemError = 2,
  kInternalError = 3,
  kInvalidArgument = 4,
  kInvalidUsage = 5,
  kRemoteError = 6,
  kInProgress = 7,
};

inline constexpr int kUndefined = INT32_MIN;
inline constexpr int kNoColor = -1;
inline constexpr int kScalarDevice = 0;
inline constexpr int kScalarHostImmediate = 1;

// Of the process, as with NCCL. Returns `code`.
int fail(int code, const std::string& text);
const char* last_error();

int version();  // FAKE_NCCL_VERSION, 22705

}  // namespace ciuic::fake_nccl
