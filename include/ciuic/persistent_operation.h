// SPDX-License-Identifier: Apache-2.0
// persistent_operation.h: calls that are made again and again on the same memory.
#pragma once

#include <cstdint>
#include <memory>

#include "ciuic/export.h"
#include "ciuic/status.h"
#include "ciuic/work.h"

namespace ciuic {

namespace backend {
class Prepared;
}

// Made by Communicator::persistent(), which must outlive it. Checking, choosing and binding were
// done there; a start costs what is left. One thread at a time.
class CIUIC_EXPORT PersistentOperation {
 public:
  explicit PersistentOperation(std::unique_ptr<backend::Prepared> prepared);
  PersistentOperation(PersistentOperation&& other) noexcept;
  PersistentOperation& operator=(PersistentOperation&& other) noexcept;
  ~PersistentOperation();

  // As if the calls were made now; all ranks start theirs in the same order.
  //   kInvalidArgument  what was started before has not ended     kClosed  the communicator is
  Result<Work> start();

  // The same in another stream than that of Communicator::persistent(), of tensors on a GPU. What
  // was started before has ended, or its Work's wait_on() has returned.
  Result<Work> start(const Stream& stream);

 private:
  std::unique_ptr<backend::Prepared> prepared_;
  Work last_;
  uint32_t made_in_ = 0;
};

}  // namespace ciuic
