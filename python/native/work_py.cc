// SPDX-License-Identifier: Apache-2.0
// work_py.cc: Work, an operation under way.

#include "module.h"

namespace ciuic::python {
namespace {

// How long a wait goes on before it looks for Ctrl-C, which only sets a flag in Python.
constexpr int64_t kSignalCheckMs = 50;

// Gives up a reference from a thread that may not hold the GIL. An interpreter that ends takes no
// more threads in: what is left then goes with the process.
void drop(PyObject* object) {
#if PY_VERSION_HEX >= 0x030d0000
  if (Py_IsFinalizing()) return;
#else
  if (!Py_IsInitialized()) return;
#endif
  const nb::gil_scoped_acquire gil;
  Py_DECREF(object);
}

// The operation, and what must outlive it.
class PyWork {
 public:
  PyWork(Work work, std::weak_ptr<Communicator> communicator, nb::object keep, bool keeps_memory)
      : work_(std::move(work)),
        communicator_(std::move(communicator)),
        keep_(std::move(keep)),
        keeps_memory_(keeps_memory) {}

  PyWork(const PyWork&) = delete;
  PyWork& operator=(const PyWork&) = delete;

  ~PyWork() {
    if (!keep_.is_valid()) return;
    if (work_.done()) {
      let_go(work_.status());
      return;
    }
    PyObject* keep = keep_.release().ptr();
    const nb::gil_scoped_release no_gil;  // the callback may run at once, on another thread
    work_.on_done([keep, keeps_memory = keeps_memory_](const Status& status) {
      if (status.ok() || !keeps_memory) drop(keep);
    });
  }

  void wait() {
    bool was_interrupted = false;
    Status status;
    {
      const nb::gil_scoped_release no_gil;
      status = wait_interruptibly(work_, communicator_.lock(), &was_interrupted);
    }
    let_go(status);
    if (was_interrupted) throw nb::python_error();
    raise_unless_ok(status);
  }

  bool wait_for(int64_t timeout_ms) {
    const nb::gil_scoped_release no_gil;
    (void)work_.wait_for(timeout_ms);
    return work_.done();
  }

  bool done() {
    const nb::gil_scoped_release no_gil;
    return work_.done();
  }

  // Of a recv that has ended.
  int source() const { return work_.source(); }
  int tag() const { return work_.tag(); }

 private:
  // Of a failed operation of another library's, the memory may still be written to: it stays.
  void let_go(const Status& status) {
    if (!status.ok() && keeps_memory_) (void)keep_.release();
    keep_ = nb::object();
  }

  Work work_;
  std::weak_ptr<Communicator> communicator_;
  nb::object keep_;
  bool keeps_memory_;
};

}  // namespace

Status wait_interruptibly(Work& work, const std::shared_ptr<Communicator>& communicator,
                          bool* was_interrupted) {
  for (;;) {
    Status status = work.wait_for(kSignalCheckMs);
    // kTimeout is the operation's end, or only that of this look at it.
    if (status.code() != StatusCode::kTimeout) return status;
    if (work.done()) return work.status();
    if (!interrupted()) continue;
    *was_interrupted = true;
    if (communicator != nullptr) (void)communicator->abort("it was interrupted by a signal");
    return work.wait();  // no one may write to the caller's arrays once this returns
  }
}

void keep_callers_memory() {
  Py_XINCREF(reinterpret_cast<PyObject*>(PyEval_GetFrame()));  // and with it those that called it
}

nb::object make_work(Work work, const std::shared_ptr<Communicator>& communicator, nb::object keep,
                     bool keeps_memory) {
  return nb::cast(new PyWork(std::move(work), communicator, std::move(keep), keeps_memory),
                  nb::rv_policy::take_ownership);
}

void bind_work(nb::module_& module) {
  nb::class_<PyWork>(module, "Work", "An operation under way.")
      .def("wait", &PyWork::wait, "Blocks until it has ended; raises where it failed.")
      .def("wait_for", &PyWork::wait_for, nb::arg("timeout_ms"),
           "Blocks for `timeout_ms` at most; whether it has ended. Raises nothing.")
      .def("done", &PyWork::done, "Whether it has ended, well or not. Never blocks.")
      .def_prop_ro("source", &PyWork::source, "Of a recv that has ended: the sender, else -1.")
      .def_prop_ro("tag", &PyWork::tag, "Of a recv that has ended: the message's tag, else -1.");
}

}  // namespace ciuic::python
