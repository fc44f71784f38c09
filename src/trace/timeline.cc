// SPDX-License-Identifier: Apache-2.0
// timeline.cc: between two moments by a straight line, outside of them by the pace of the whole.

#include "trace/timeline.h"

#include <algorithm>
#include <cmath>

namespace ciuic::trace {

// Times further from zero than this are nonsense (73 years).
static constexpr double kFarthest = 2.3e18;

static int64_t whole(double value) {
  if (!(value > -kFarthest)) return static_cast<int64_t>(-kFarthest);
  return static_cast<int64_t>(std::llround(std::min(value, kFarthest)));
}

// b - a, which need not fit into any integer.
static double apart(uint64_t a, uint64_t b) {
  return b >= a ? static_cast<double>(b - a) : -static_cast<double>(a - b);
}

static double apart(int64_t a, int64_t b) {
  return static_cast<double>(b) - static_cast<double>(a);
}

static bool is_before(const Moment& a, const Moment& b) {
  return a.ticks < b.ticks && a.monotonic_ns < b.monotonic_ns;
}

Timeline::Timeline(ClockKind kind, std::vector<Moment> moments) : kind_(kind) {
  std::sort(moments.begin(), moments.end(),
            [](const Moment& a, const Moment& b) { return a.ticks < b.ticks; });
  for (const Moment& moment : moments) {
    if (std::fabs(static_cast<double>(moment.monotonic_ns)) > kFarthest ||
        std::fabs(static_cast<double>(moment.realtime_ns)) > kFarthest) {
      continue;
    }
    if (moments_.empty() || is_before(moments_.back(), moment)) moments_.push_back(moment);
  }
  if (moments_.size() < 2) return;
  const Moment& first = moments_.front();
  const Moment& last = moments_.back();
  pace_ = apart(first.monotonic_ns, last.monotonic_ns) / apart(first.ticks, last.ticks);
}

int64_t Timeline::monotonic_ns(uint64_t ticks) const {
  if (kind_ == ClockKind::kMonotonic || moments_.empty()) return whole(static_cast<double>(ticks));
  const auto after =
      std::upper_bound(moments_.begin(), moments_.end(), ticks,
                       [](uint64_t value, const Moment& moment) { return value < moment.ticks; });
  const Moment& from = after == moments_.begin() ? *after : *(after - 1);
  double pace = pace_;
  if (after != moments_.begin() && after != moments_.end()) {
    pace = apart(from.monotonic_ns, after->monotonic_ns) / apart(from.ticks, after->ticks);
  }
  const double offset = apart(from.ticks, ticks) * pace;
  return from.monotonic_ns + whole(std::clamp(offset, -kFarthest, kFarthest));
}

int64_t Timeline::realtime_offset_ns() const {
  return moments_.empty() ? 0 : moments_.back().realtime_ns - moments_.back().monotonic_ns;
}

}  // namespace ciuic::trace
