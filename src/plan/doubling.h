// SPDX-License-Identifier: Apache-2.0
// doubling.h: places in pairs, so that a power of two remains, for rounds of exchanges with
// partners at distances 1, 2, 4, ...
#pragma once

namespace ciuic::plan {

// The first 2 * extras places are pairs, of which the second one waits while the first takes part
// for both. Places that take part are groups 0, 1, ... power - 1.
struct Doubling {
  int power = 1;   // the largest power of two that is not over the number of places
  int rounds = 0;  // log2(power)
  int extras = 0;

  explicit Doubling(int size) {
    while (2 * power <= size) {
      power *= 2;
      ++rounds;
    }
    extras = size - power;
  }
  bool paired(int place) const { return place < 2 * extras; }
  bool waits(int place) const { return paired(place) && place % 2 == 1; }
  int group_of(int place) const { return paired(place) ? place / 2 : place - extras; }
  int place_of(int group) const { return group < extras ? 2 * group : group + extras; }
};

}  // namespace ciuic::plan
