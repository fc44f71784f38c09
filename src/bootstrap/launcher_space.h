// SPDX-License-Identifier: Apache-2.0
// launcher_space.h: the key-value space that a launcher keeps for the processes it has started.
#pragma once

#include <cstddef>
#include <string>

#include "base/clock.h"
#include "ciuic/status.h"

namespace ciuic::bootstrap {

// One process's conversation with its launcher. After an error it is of no further use: an answer
// that is still to come would be taken for the next one's. One thread at a time.
class LauncherSpace {
 public:
  virtual ~LauncherSpace() = default;

  // Keys and values are letters, digits and '-'. What is put is seen by all after the next fence.
  virtual Status put(const std::string& key, const std::string& value, TimeNs deadline) = 0;

  // Returns when all processes of the job have called it. kTimeout: not all did.
  virtual Status fence(TimeNs deadline) = 0;

  // What was put before the last fence. kPeerLost: nothing.
  virtual Result<std::string> get(const std::string& key, TimeNs deadline) = 0;

  // Bytes that fit into one value.
  virtual size_t value_bytes() const = 0;

  // "PMI-1", "PMI-2" or "PMIx", in errors and where describe() tells how the ranks met.
  virtual const char* name() const = 0;
};

}  // namespace ciuic::bootstrap
