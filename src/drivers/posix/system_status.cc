// SPDX-License-Identifier: Apache-2.0
// system_status.cc: errno to status code and text.

#include "drivers/posix/system_status.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>

namespace ciuic::posix {

std::string errno_text(int error) {
  const char* text = strerrordesc_np(error);
  const char* name = strerrorname_np(error);
  return fmt::format("{} ({}, errno {})", text != nullptr ? text : "unknown error",
                     name != nullptr ? name : "?", error);
}

static StatusCode code_of(int error) {
  switch (error) {
    case EMFILE:
    case ENFILE:
    case ENOMEM:
    case ENOBUFS:
    case ENOSPC:
    case EADDRINUSE:
    case EADDRNOTAVAIL:
    case EAGAIN: return StatusCode::kResource;
    case EACCES:
    case EPERM: return StatusCode::kPermission;
    default: return StatusCode::kSystem;
  }
}

Status system_status(const std::string& what, int error) {
  return Status(code_of(error), what + ": " + errno_text(error));
}

}  // namespace ciuic::posix
