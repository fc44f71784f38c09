// SPDX-License-Identifier: Apache-2.0
// ticks.cc: whether the processor's counter will do, and one moment on all clocks.

#include "trace/ticks.h"

#include <array>
#include <fstream>
#include <string>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace ciuic::trace {

// The kernel measures whether the counters of all cores agree; where they do not, or the machine is
// one that may be moved to another, it keeps its time by something else.
[[maybe_unused]] static bool kernel_trusts(const std::string& wanted) {
  std::ifstream file("/sys/devices/system/clocksource/clocksource0/current_clocksource");
  std::string name;
  return file >> name && name == wanted;
}

static ClockKind look() {
#if defined(__x86_64__)
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  const bool invariant = __get_cpuid(0x80000007u, &a, &b, &c, &d) != 0 && (d & (1u << 8)) != 0;
  if (invariant && kernel_trusts("tsc")) return ClockKind::kCounter;
#elif defined(__aarch64__)
  return ClockKind::kCounter;  // the architecture promises one pace, on all cores
#endif
  return ClockKind::kMonotonic;
}

ClockKind clock_kind() {
  static const ClockKind kind = look();
  return kind;
}

static int64_t realtime_ns() {
  timespec t{};
  clock_gettime(CLOCK_REALTIME, &t);
  return static_cast<int64_t>(t.tv_sec) * 1'000'000'000 + t.tv_nsec;
}

Moment this_moment(ClockKind kind) {
  // The narrowest of a few tries: an interrupt between two clocks would set them apart.
  Moment best;
  int64_t narrowest = INT64_MAX;
  for (int attempt = 0; attempt < 4; ++attempt) {
    const int64_t before = now_ns();
    const uint64_t ticks = read_ticks(kind);
    const int64_t real = realtime_ns();
    const int64_t after = now_ns();
    if (after - before >= narrowest) continue;
    narrowest = after - before;
    const int64_t middle = before + narrowest / 2;
    best = {kind == ClockKind::kMonotonic ? static_cast<uint64_t>(middle) : ticks, middle, real};
  }
  return best;
}

}  // namespace ciuic::trace
