// SPDX-License-Identifier: Apache-2.0
// interrupts.cc: Python's functions by name, and what is done with them.

#include "interrupts.h"

#include <dlfcn.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace ciuic::torch_backend {

namespace {

// How long a wait goes on before it looks for Ctrl-C, which only sets a flag in Python.
constexpr int64_t kSignalCheckMs = 50;

// The part of CPython's C API that is used; all null where there is no Python.
struct Python {
  int (*is_initialized)() = nullptr;
  int (*is_finalizing)() = nullptr;
  int (*gil_check)() = nullptr;
  int (*gil_ensure)() = nullptr;
  void (*gil_release)(int) = nullptr;
  void* (*save_thread)() = nullptr;
  void (*restore_thread)(void*) = nullptr;
  int (*check_signals)() = nullptr;
  void (*fetch)(void**, void**, void**) = nullptr;
  void (*restore)(void*, void*, void*) = nullptr;
  int (*add_pending_call)(int (*)(void*), void*) = nullptr;
};

template <typename Function>
bool find(Function** function, const char* name) {
  *function = reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
  return *function != nullptr;
}

const Python* python() {
  static const Python* const found = [] {
    static Python python;
    const bool finalizing = find(&python.is_finalizing, "Py_IsFinalizing") ||  // from 3.13 on
                            find(&python.is_finalizing, "_Py_IsFinalizing");
    const bool all = finalizing && find(&python.is_initialized, "Py_IsInitialized") &&
                     find(&python.gil_check, "PyGILState_Check") &&
                     find(&python.gil_ensure, "PyGILState_Ensure") &&
                     find(&python.gil_release, "PyGILState_Release") &&
                     find(&python.save_thread, "PyEval_SaveThread") &&
                     find(&python.restore_thread, "PyEval_RestoreThread") &&
                     find(&python.check_signals, "PyErr_CheckSignals") &&
                     find(&python.fetch, "PyErr_Fetch") && find(&python.restore, "PyErr_Restore") &&
                     find(&python.add_pending_call, "Py_AddPendingCall");
    return all ? &python : nullptr;
  }();
  return found != nullptr && found->is_initialized() != 0 && found->is_finalizing() == 0 ? found
                                                                                         : nullptr;
}

struct Raised {
  void* type = nullptr;
  void* value = nullptr;
  void* traceback = nullptr;
};

int raise_again(void* argument) {
  auto* raised = static_cast<Raised*>(argument);
  python()->restore(raised->type, raised->value, raised->traceback);
  delete raised;
  return -1;
}

enum class Interrupt { kNone, kRaised, kLost };  // kLost: what was raised could not be kept

// Runs Python's handlers where a signal came, which it does in its main thread alone.
Interrupt interrupted() {
  if (syscall(SYS_gettid) != getpid()) return Interrupt::kNone;
  const Python* found = python();
  if (found == nullptr) return Interrupt::kNone;
  const int state = found->gil_ensure();
  Interrupt interrupt = Interrupt::kNone;
  if (found->check_signals() != 0) {
    interrupt = Interrupt::kRaised;
    // torch's bindings would put our C++ exception in its place, so it is kept until they are done.
    auto* kept = new Raised;
    found->fetch(&kept->type, &kept->value, &kept->traceback);
    if (found->add_pending_call(&raise_again, kept) != 0) {
      delete kept;
      interrupt = Interrupt::kLost;
    }
  }
  found->gil_release(state);
  return interrupt;
}

// `look` waits for so many milliseconds at most.
template <typename Look>
Waited wait_by(Look look, Work& work, Communicator* communicator, int64_t timeout_ms) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  int64_t left_ms = timeout_ms;
  for (;;) {
    Status status = look(timeout_ms < 0 ? kSignalCheckMs : std::min(left_ms, kSignalCheckMs));
    // kTimeout is the operation's end, or only that of this look at it.
    if (status.code() != StatusCode::kTimeout) return {.status = std::move(status)};
    if (work.done()) return {.status = work.status()};
    if (timeout_ms >= 0) {
      const auto passed =
          std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - begin);
      left_ms = timeout_ms - passed.count();
      if (left_ms <= 0) return {.status = std::move(status), .is_too_early = true};
    }
    const Interrupt interrupt = interrupted();
    if (interrupt == Interrupt::kNone) continue;
    if (communicator != nullptr) (void)communicator->abort("it was interrupted by a signal");
    // No one may write to the caller's tensors once this returns.
    return {.status = work.wait(), .is_interrupted = interrupt == Interrupt::kRaised};
  }
}

}  // namespace

Waited wait_interruptibly(Work& work, Communicator* communicator, int64_t timeout_ms) {
  return wait_by([&work](int64_t ms) { return work.wait_for(ms); }, work, communicator, timeout_ms);
}

Waited wait_interruptibly(Work& work, const Stream& stream, Communicator* communicator,
                          int64_t timeout_ms) {
  return wait_by([&](int64_t ms) { return work.wait_on(stream, ms); }, work, communicator,
                 timeout_ms);
}

GilRelease::GilRelease() {
  const Python* found = python();
  if (found != nullptr && found->gil_check() != 0) state_ = found->save_thread();
}

GilRelease::~GilRelease() {
  if (state_ != nullptr) python()->restore_thread(state_);
}

}  // namespace ciuic::torch_backend
