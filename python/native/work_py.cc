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
  PyWork(Work work, const Device& device, std::weak_ptr<Communicator> communicator, nb::object keep,
         bool keeps_memory)
      : work_(std::move(work)),
        device_(device),
        communicator_(std::move(communicator)),
        keep_(std::move(keep)),
        keeps_memory_(keeps_memory) {}

  PyWork(const PyWork&) = delete;
  PyWork& operator=(const PyWork&) = delete;

  ~PyWork() { let_go_when_done(); }

  void wait() {
    bool was_interrupted = false;
    Status status;
    const bool is_on_gpu = device_.kind == DeviceKind::kCuda;
    const Stream stream = is_on_gpu ? current_stream(device_.index) : Stream();
    {
      const nb::gil_scoped_release no_gil;
      status = wait_interruptibly(work_, is_on_gpu ? &stream : nullptr, communicator_.lock(),
                                  &was_interrupted);
    }
    if (is_on_gpu && status.ok()) {
      has_ordered_ = true;
      let_go_when_done();  // the stream waits, not the caller
    } else {
      let_go(status);
    }
    if (was_interrupted) throw nb::python_error();
    raise_unless_ok(status);
  }

  bool wait_for(int64_t timeout_ms) {
    const nb::gil_scoped_release no_gil;
    (void)work_.wait_for(timeout_ms);
    return work_.done();
  }

  // On a GPU also once a stream waits for it: wait() would return at once.
  bool done() {
    if (has_ordered_) return true;
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

  void let_go_when_done() {
    if (!keep_.is_valid()) return;
    if (work_.done()) return let_go(work_.status());
    PyObject* keep = keep_.release().ptr();
    const nb::gil_scoped_release no_gil;  // the callback may run at once, on another thread
    work_.on_done([keep, keeps_memory = keeps_memory_](const Status& status) {
      if (status.ok() || !keeps_memory) drop(keep);
    });
  }

  Work work_;
  Device device_;
  std::weak_ptr<Communicator> communicator_;
  nb::object keep_;
  bool keeps_memory_;
  bool has_ordered_ = false;
};

}  // namespace

Status wait_interruptibly(Work& work, const Stream* stream,
                          const std::shared_ptr<Communicator>& communicator,
                          bool* was_interrupted) {
  for (;;) {
    Status status =
        stream != nullptr ? work.wait_on(*stream, kSignalCheckMs) : work.wait_for(kSignalCheckMs);
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

nb::object make_work(Work work, const Device& device,
                     const std::shared_ptr<Communicator>& communicator, nb::object keep,
                     bool keeps_memory) {
  return nb::cast(new PyWork(std::move(work), device, communicator, std::move(keep), keeps_memory),
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
