// SPDX-License-Identifier: Apache-2.0
// backend.h: who carries a group's operations out. A communicator has one.
#pragma once

#include <cstddef>

#include "ciuic/status.h"
#include "ciuic/work.h"
#include "collective/arguments.h"
#include "engine/data_path.h"

namespace ciuic::backend {

struct Capabilities {
  const char* name = "";   // "native"
  bool cuda = false;       // takes tensors on a GPU
  bool can_abort = false;  // abort() ends operations that are under way
};

class Backend : public engine::DataPath {
 public:
  virtual Capabilities capabilities() const = 0;

  // Starts the operation. Returned errors are the caller's mistakes, and nothing was sent.
  virtual Result<Work> submit(const collective::Arguments& arguments) = 0;

  // Lets operations progress, without blocking. Work::wait() does so by itself.
  virtual void progress() = 0;

  // Something is wrong with the group: a cause to end it, like those that the backend finds itself.
  virtual void report(const engine::Cause& cause) = 0;

  // Leaves the group: peers are told, what is in flight ends with kAborted, connections and memory
  // are given back. Idempotent. Operations may not be submitted any more. Returns the error with
  // which the group had ended where no Work has told it.
  virtual Status close() = 0;

  // Ok, or how the group has ended.
  virtual Status status() = 0;

  virtual size_t staging_bytes() = 0;
  virtual size_t link_bytes() = 0;
};

}  // namespace ciuic::backend
