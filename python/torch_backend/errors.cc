// SPDX-License-Identifier: Apache-2.0
// errors.cc: the table of status codes and torch's exceptions.

#include "errors.h"

#include <c10/util/Exception.h>

namespace ciuic::torch_backend {

static c10::SourceLocation here(const char* function) {
  return {function, __FILE__, static_cast<uint32_t>(__LINE__)};
}

std::exception_ptr error_of(const Status& status, std::chrono::milliseconds timeout) {
  const std::string message = "ciuic: " + status.message();
  switch (status.code()) {
    case StatusCode::kOk: return nullptr;
    case StatusCode::kInvalidArgument:
    case StatusCode::kUnsupported:
      return std::make_exception_ptr(c10::Error(here(__func__), message));
    case StatusCode::kTimeout: {
      // Programs look for these words, which are gloo's.
      const std::string words = "ciuic: Timed out waiting " + std::to_string(timeout.count());
      return std::make_exception_ptr(
          c10::DistBackendError(here(__func__), words + "ms: " + status.message()));
    }
    default: return std::make_exception_ptr(c10::DistBackendError(here(__func__), message));
  }
}

void throw_too_early(std::chrono::milliseconds timeout) {
  std::rethrow_exception(
      error_of({StatusCode::kTimeout, "Operation timed out! It goes on"}, timeout));
}

void refuse(const char* operation, const std::string& why) {
  throw c10::Error(here(__func__),
                   std::string("ciuic: ") + operation + ": " + why + ". Nothing was sent.");
}

}  // namespace ciuic::torch_backend
