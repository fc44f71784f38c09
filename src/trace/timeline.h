// SPDX-License-Identifier: Apache-2.0
// timeline.h: from ticks to nanoseconds, by moments that were taken on both clocks.
#pragma once

#include <cstdint>
#include <vector>

#include "trace/ticks.h"

namespace ciuic::trace {

class Timeline {
 public:
  // `moments` in any order; some may be nonsense. None: ticks are taken for nanoseconds.
  Timeline(ClockKind kind, std::vector<Moment> moments);

  int64_t monotonic_ns(uint64_t ticks) const;

  // What CLOCK_REALTIME was ahead, at the last moment.
  int64_t realtime_offset_ns() const;

 private:
  ClockKind kind_;
  std::vector<Moment> moments_;  // ascending on both clocks
  double pace_ = 1;              // nanoseconds a tick, from the first moment to the last
};

}  // namespace ciuic::trace
