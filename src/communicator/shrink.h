// SPDX-License-Identifier: Apache-2.0
// shrink.h: the survivors of a group that has ended meet again, without its store and its rank 0.
//
// Every rank listens on from the join at the addresses that it gave then, so survivors reach each
// other by what they know from the join (muster.h has the rules). The connections prove the old
// group's secret. Then the join goes as ever, with a new secret, and the epoch after the old one.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "bootstrap/messages.h"
#include "bootstrap/prove.h"
#include "ciuic/status.h"
#include "ciuic/store.h"
#include "drivers/posix/unique_fd.h"

namespace ciuic {

// What a rank keeps from the join for it.
struct OldGroup {
  int rank = 0;
  bootstrap::Roll roll;
  bootstrap::Reachable reachable;
  std::vector<posix::UniqueFd> listeners;
};

struct Survivors {
  int rank = 0;  // this one's new rank; new ranks are in the order of the old ones
  int size = 1;
  std::shared_ptr<Store> store;  // where they meet; null where there is one alone
};

// `gone`: by old rank. Blocks until the deadline at most. kTimeout: names the ranks that neither
// came nor are gone. kPeerLost: the others have given this rank up.
Result<Survivors> muster_survivors(const OldGroup& old, std::vector<bool> gone, TimeNs deadline);

}  // namespace ciuic
