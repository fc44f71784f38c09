// SPDX-License-Identifier: Apache-2.0
// system_status.cc: errno to status code and text.

#include "drivers/posix/system_status.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>

#include "drivers/posix/limits.h"

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
  std::string text = what + ": " + errno_text(error);
  if (error == EMFILE) text += "; " + descriptor_advice();
  if (error == ENFILE) text += "; " + open_files_advice();
  if (error == ENOMEM) text += "; " + memory_advice();
  return Status(code_of(error), text);
}

}  // namespace ciuic::posix
