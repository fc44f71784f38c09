// SPDX-License-Identifier: Apache-2.0
// unique_fd.cc: closing a descriptor.

#include "drivers/posix/unique_fd.h"

#include <unistd.h>

#include <cerrno>

namespace ciuic::posix {

void UniqueFd::reset(int fd) {
  const int old = std::exchange(fd_, fd);
  if (old < 0) return;
  // Destructors run while errors are being reported, so errno stays as it was. After EINTR Linux
  // has closed the descriptor already; a second close could hit another thread's new one.
  const int saved = errno;
  ::close(old);
  errno = saved;
}

}  // namespace ciuic::posix
