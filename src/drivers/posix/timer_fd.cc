// SPDX-License-Identifier: Apache-2.0
// timer_fd.cc: timerfd on the monotonic clock, which now_ns() reads too.

#include "drivers/posix/timer_fd.h"

#include <poll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>

#include "drivers/posix/system_status.h"

namespace ciuic::posix {

Result<UniqueFd> create_timer() {
  UniqueFd fd(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
  if (!fd) return system_status("timerfd_create", errno);
  return fd;
}

void set_timer(int fd, TimeNs at) {
  itimerspec when{};
  if (at != kNever) {
    const TimeNs moment = std::max<TimeNs>(at, 1);  // 0 would mean: not at all
    when.it_value.tv_sec = moment / 1'000'000'000;
    when.it_value.tv_nsec = moment % 1'000'000'000;
  }
  timerfd_settime(fd, TFD_TIMER_ABSTIME, &when, nullptr);
}

void await_timer(int fd) {
  pollfd waits{.fd = fd, .events = POLLIN, .revents = 0};
  uint64_t times = 0;
  while (::read(fd, &times, sizeof times) < 0 && (errno == EAGAIN || errno == EINTR)) {
    ::poll(&waits, 1, -1);
  }
}

}  // namespace ciuic::posix
