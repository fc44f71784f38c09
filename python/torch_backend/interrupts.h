// SPDX-License-Identifier: Apache-2.0
// interrupts.h: what little the backend has to do with Python: a wait that Ctrl-C ends, and letting
// go of the GIL where torch's bindings do not.
//
// Nothing here is linked with Python: its functions are looked for in the process when they are
// first needed, so that one library serves every CPython. A process without Python has no GIL, and
// no handlers to run.
#pragma once

#include "ciuic/communicator.h"
#include "ciuic/work.h"

namespace ciuic::torch_backend {

struct Waited {
  Status status;
  // Python raises an exception as soon as this thread is back there; what the caller then throws
  // itself would come before it.
  bool is_interrupted = false;
};

// Waits for the operation to end, and looks now and then whether a signal came. Where Python's
// handler of it raises, the group is ended on every rank, the end that this brings is waited for,
// and what was raised is raised anew as soon as this thread is back in Python.
Waited wait_interruptibly(Work& work, Communicator* communicator);

// The same, until the stream waits for the operation (ciuic::Work::wait_on).
Waited wait_interruptibly(Work& work, const Stream& stream, Communicator* communicator);

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
