// SPDX-License-Identifier: Apache-2.0
// fenced_store.h: a store whose values are seen only after all ranks have met at a fence, as PMI's.
//
// It has no counters and no waiting for one key, and needs none: it belongs to one start of the
// job, so it holds nothing of an earlier one.
#pragma once

#include <cstdint>
#include <string>

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
};

}  // namespace ciuic::bootstrap
