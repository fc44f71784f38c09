// SPDX-License-Identifier: Apache-2.0
// system_status.h: a failed system call as a Status.
#pragma once

#include <string>

#include "ciuic/status.h"

namespace ciuic::posix {

// "connect to 10.0.0.1:80: Connection refused (ECONNREFUSED, errno 111)".
std::string errno_text(int error);

// kResource for what ran out or is in use, kPermission for what is not allowed, else kSystem.
// `what` says what was tried; `error` is an errno. What meets a limit of descriptors or memory is
// told with its numbers.
Status system_status(const std::string& what, int error);

}  // namespace ciuic::posix
