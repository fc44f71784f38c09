// SPDX-License-Identifier: Apache-2.0
// interrupts.h: what little the backend has to do with Python: a wait that Ctrl-C ends, and letting
// go of the GIL where torch's bindings do not.
//
// Nothing here is linked with Python: its functions are looked for in the process when they are
// first needed, so that one library serves every CPython. A process without Python has no GIL, and
// no handlers to run.
#pragma once

#include <chrono>
#include <cstdint>

#include "ciuic/communicator.h"
#include "ciuic/work.h"

namespace ciuic::torch_backend {

struct Waited {
  Status status;
  // Python raises an exception as soon as this thread is back there; what the caller then throws
  // itself would come before it.
  bool is_interrupted = false;
  bool is_too_early = false;  // the time of this wait is up, and the operation goes on
};

// Waits for the operation to end, and looks now and then whether a signal came. Where Python's
// handler of it raises, the group is ended on every rank, the end that this brings is waited for,
// and what was raised is raised anew as soon as this thread is back in Python. `timeout_ms`: of
// this wait; -1 for none but the operation's own.
Waited wait_interruptibly(Work& work, Communicator* communicator, int64_t timeout_ms = -1);

// The same, until the stream waits for the operation (ciuic::Work::wait_on).
Waited wait_interruptibly(Work& work, const Stream& stream, Communicator* communicator,
                          int64_t timeout_ms = -1);

// Of a wait of torch's, which says 0 for none.
inline int64_t limit_of(std::chrono::milliseconds timeout) {
  return timeout.count() == 0 ? -1 : timeout.count();
}

// Lets go of the GIL while it lives, where this thread has it.
class GilRelease {
 public:
  GilRelease();
  ~GilRelease();
  GilRelease(const GilRelease&) = delete;
  GilRelease& operator=(const GilRelease&) = delete;

 private:
  void* state_ = nullptr;
};

}  // namespace ciuic::torch_backend
