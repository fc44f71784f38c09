// SPDX-License-Identifier: Apache-2.0
// clock.h: time in nanoseconds, and deadlines. Code that the simulator runs takes `now` as an
// argument and never looks at the clock itself.
#pragma once

#include <cstdint>

namespace ciuic {

using TimeNs = int64_t;  // CLOCK_MONOTONIC, or the simulator's time

inline constexpr TimeNs kNever = INT64_MAX;

TimeNs now_ns();

// The moment `timeout_ms` after `now`; kNever for a time that does not fit.
constexpr TimeNs deadline_after(TimeNs now, int64_t timeout_ms) {
  return timeout_ms > (kNever - now) / 1'000'000 ? kNever : now + timeout_ms * 1'000'000;
}

// Milliseconds left until `deadline`, at least 0, rounded up.
constexpr int64_t left_ms(TimeNs deadline, TimeNs now) {
  if (deadline == kNever) return INT64_MAX / 1'000'000;
  return deadline <= now ? 0 : (deadline - now + 999'999) / 1'000'000;
}

}  // namespace ciuic
