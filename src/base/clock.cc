// SPDX-License-Identifier: Apache-2.0
// clock.cc: the system's monotonic clock.

#include "base/clock.h"

#include <ctime>

namespace ciuic {

TimeNs now_ns() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<TimeNs>(t.tv_sec) * 1'000'000'000 + t.tv_nsec;
}

}  // namespace ciuic
