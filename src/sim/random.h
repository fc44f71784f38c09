// SPDX-License-Identifier: Apache-2.0
// random.h: the simulator's random numbers: the same on every machine for the same seed.
#pragma once

#include <cstdint>

namespace ciuic::sim {

// A good 64-bit mix of one number. Source: Steele, Lea and Flood, "Fast splittable pseudorandom
// number generators", OOPSLA 2014 (the finalizer of SplitMix64).
constexpr uint64_t mix(uint64_t value) {
  value += 0x9e3779b97f4a7c15u;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
  return value ^ (value >> 31);
}

class Random {
 public:
  explicit Random(uint64_t seed) : state_(mix(seed)) {}

  uint64_t next() { return mix(state_ += 0x9e3779b97f4a7c15u); }

  // From low to high, both included.
  int64_t between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(next() % static_cast<uint64_t>(high - low + 1));
  }

  bool chance(int percent) { return between(0, 99) < percent; }

  // From low to high, each power of two between them about as often.
  int64_t spread(int64_t low, int64_t high) {
    int bits = 0;
    while ((low << bits) < high) ++bits;
    const int64_t top = low << between(0, bits);
    return between(low, top < high ? top : high);
  }

  // Another stream of numbers, for a part that draws at its own pace.
  Random split() { return Random(next()); }

 private:
  uint64_t state_;
};

}  // namespace ciuic::sim
