// SPDX-License-Identifier: Apache-2.0
// status.h: errors as values. No function of this library throws, or lets an exception through.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "ciuic/export.h"

namespace ciuic {

enum class StatusCode : uint8_t {
  kOk = 0,
  kInvalidArgument,  // The caller's mistake; nothing was sent.
  kUnsupported,      // Not defined, such as this op on this dtype; nothing was sent.
  kMismatch,         // The ranks' calls, options or versions differ.
  kTimeout,          // A peer did not come, or stayed silent; the message names it.
  kPeerLost,         // A peer's process or connection is gone; the message names it.
  kAborted,          // Ended by abort(), by close() of this rank, or by an earlier error.
  kClosed,           // The communicator was closed, or the process has forked since it was made.
  kResource,         // Memory, descriptors, address or port in use.
  kPermission,       // A secret that does not match, an address that may not be used.
  kUnavailable,      // A library, device or backend that is not there.
  kSystem,           // Any other failure of the operating system; the message has the errno.
};

CIUIC_EXPORT const char* name_of(StatusCode code);  // "kOk" is "ok", "kPeerLost" is "peer_lost".

class [[nodiscard]] Status {
 public:
  Status() = default;  // ok
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
};

// A value, or the Status that says why there is none.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}          // NOLINT(google-explicit-constructor)
  Result(Status status) : status_(std::move(status)) {}  // NOLINT(google-explicit-constructor)

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  T& value() { return *value_; }
  const T& value() const { return *value_; }
  T& operator*() { return *value_; }
  const T& operator*() const { return *value_; }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }

 private:
  std::optional<T> value_;
  Status status_;
};

}  // namespace ciuic

#define CIUIC_RETURN_IF_ERROR(expression)                        \
  do {                                                           \
    ::ciuic::Status status_of_expression = (expression);         \
    if (!status_of_expression.ok()) return status_of_expression; \
  } while (false)
