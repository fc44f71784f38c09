// SPDX-License-Identifier: Apache-2.0
// admission.h: connections that have proven nothing yet: how many may wait, and who goes first.
//
// Anybody can connect. So those who only do that are few in number, use up neither this process's
// descriptors nor its time, and give way to those who begin to prove that they know the secret.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>

#include "ciuic/status.h"

namespace ciuic::security {

// How many may be held: `most`, or a quarter of the descriptors that this process may open.
size_t most_unproven(size_t most);

// So many of those are taken from a listener's queue in one pass. Between passes those who are in
// are served, however fast others come; and who came in one is heard before the next can push it
// out.
constexpr size_t accepts_at_once(size_t most_unproven) {
  return std::clamp<size_t>(most_unproven / 16, 1, 64);  // of each of a few listeners
}

// What a time-out says of somebody who did not come, behind its own words, where `accepted`, the
// last accept(), failed: that one may wait outside. Nothing where it did not fail.
std::string while_unable_to_accept(const std::string& who, const Status& accepted);

// Who goes first where there is no more room: of those who have proven nothing the oldest that has
// not even said hello, else the oldest; the end where there is none. `room` has the oldest first;
// its items answer is_proven() and has_said_hello().
template <typename Room>
typename Room::iterator first_to_go(Room& room) {
  auto oldest = room.end();
  for (auto item = room.begin(); item != room.end(); ++item) {
    if (item->is_proven()) continue;
    if (!item->has_said_hello()) return item;
    if (oldest == room.end()) oldest = item;
  }
  return oldest;
}

}  // namespace ciuic::security
