// SPDX-License-Identifier: Apache-2.0
// errors.h: a Status becomes an exception of torch's. The one place that decides which.
//
// The caller's mistakes are c10::Error, which Python sees as RuntimeError, as gloo's are; all else
// is DistBackendError. The message is Ciuic's own.
#pragma once

#include <chrono>
#include <exception>
#include <string>

#include "ciuic/status.h"

namespace ciuic::torch_backend {

// Of a Status that is not ok. `timeout` is that of the operation, or of the group.
std::exception_ptr error_of(const Status& status, std::chrono::milliseconds timeout);

inline void throw_unless_ok(const Status& status, std::chrono::milliseconds timeout) {
  if (!status.ok()) std::rethrow_exception(error_of(status, timeout));
}

// A wait is over, and the operation is not.
[[noreturn]] void throw_too_early(std::chrono::milliseconds timeout);

// Refuses a call: nothing was sent. `operation` is its name, such as "all_reduce".
[[noreturn]] void refuse(const char* operation, const std::string& why);

}  // namespace ciuic::torch_backend
