// SPDX-License-Identifier: Apache-2.0
// unique_fd.cc: closing a descriptor.

#include "drivers/posix/unique_fd.h"

#include <unistd.h>

#include <cerrno>

#include "base/fork.h"
#include "drivers/posix/fork_closed.h"

namespace ciuic::posix {

// Destructors run while errors are being reported, so errno stays as it was. After EINTR Linux has
// closed the descriptor already; a second close could hit another thread's new one.
static void close_quietly(int fd) {
  const int saved = errno;
  ::close(fd);
  errno = saved;
}

void UniqueFd::reset(int fd) {
  const int old = std::exchange(fd_, fd);
  const int64_t marked_in = std::exchange(marked_in_, kNotMarked);
  if (old < 0) return;
  if (marked_in == kNotMarked) return close_quietly(old);
  if (marked_in != fork_generation()) return;
  const ForkHold hold;  // a child either finds it marked, or does not have it
  unmark_fork_closed(old);
  close_quietly(old);
}

void UniqueFd::close_in_children() {
  if (fd_ < 0) return;
  mark_fork_closed(fd_);
  marked_in_ = fork_generation();
}

}  // namespace ciuic::posix
