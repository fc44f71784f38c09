// SPDX-License-Identifier: Apache-2.0
// fenced_store.h: a store whose values are seen only after all ranks have met at a fence, as PMI's.
//
// It has no counters and no waiting for one key, and needs none: it belongs to one start of the
// job, so it holds nothing of an earlier one.
#pragma once

#include <poll.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "ciuic/status.h"

namespace ciuic::bootstrap {

class FencedStore {
 public:
  virtual ~FencedStore() = default;

  // All ranks of the job call it equally often. Rank 0 passes the value, the others null; all get
  // the value. kTimeout: not all came, and the store is of no further use.
  virtual Result<std::string> broadcast(const std::string* value, TimeNs deadline) = 0;

  // How many broadcasts there were; the same on all ranks.
  virtual uint32_t count() const = 0;

  // Where ranks have met over connections that stay until the join is over: what to poll for their
  // end, and a look at them. kPeerLost names who is gone, of those whom this rank has to do with:
  // rank 0 with all, the others with rank 0.
  virtual void watch(std::vector<pollfd>* /*fds*/) const {}
  virtual Status look() { return {}; }

  // What a rank was called before these came together anew; -1: it had no number.
  virtual int former_rank(int /*rank*/) const { return -1; }
};

}  // namespace ciuic::bootstrap
