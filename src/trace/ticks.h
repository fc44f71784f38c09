// SPDX-License-Identifier: Apache-2.0
// ticks.h: the cheapest clock that can be put in order across the machine's cores.
//
// Where the processor's counter runs at one pace on all cores and the kernel keeps its own time by
// it, the counter is read directly; else CLOCK_MONOTONIC.
#pragma once

#include <cstdint>
#include <ctime>

#include "base/clock.h"
#include "trace/format.h"

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace ciuic::trace {

// What this machine has.
ClockKind clock_kind();

inline uint64_t read_ticks(ClockKind kind) {
#if defined(__x86_64__)
  if (kind == ClockKind::kCounter) return __rdtsc();
#elif defined(__aarch64__)
  if (kind == ClockKind::kCounter) {
    uint64_t ticks = 0;
    asm volatile("mrs %0, cntvct_el0" : "=r"(ticks));
    return ticks;
  }
#endif
  (void)kind;
  return static_cast<uint64_t>(now_ns());
}

// One moment on all three clocks.
struct Moment {
  uint64_t ticks = 0;
  int64_t monotonic_ns = 0;
  int64_t realtime_ns = 0;
};
Moment this_moment(ClockKind kind);

}  // namespace ciuic::trace
