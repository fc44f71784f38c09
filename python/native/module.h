// SPDX-License-Identifier: Apache-2.0
// module.h: what the files of ciuic._native share. Each *_py.cc binds one concept; it converts
// between Python and the C++ API and decides nothing.
//
// The GIL is never held while the library waits, and a wait looks for Ctrl-C now and then.
#pragma once

#include <nanobind/nanobind.h>

#include <atomic>
#include <memory>

#include "ciuic/communicator.h"
#include "ciuic/status.h"
#include "ciuic/store.h"
#include "ciuic/work.h"

namespace ciuic::python {

namespace nb = nanobind;

void bind_array(nb::module_& module);
void bind_bench(nb::module_& module);
void bind_call(nb::module_& module);
void bind_communicator(nb::module_& module);
void bind_cuda(nb::module_& module);
void bind_errors(nb::module_& module);
void bind_info(nb::module_& module);
void bind_launch(nb::module_& module);
void bind_plan(nb::module_& module);
void bind_store(nb::module_& module);
void bind_trace(nb::module_& module);
void bind_work(nb::module_& module);

// Raises the exception that ciuic.errors has for `status`, which is not ok. Needs the GIL.
[[noreturn]] void raise(const Status& status);

inline void raise_unless_ok(const Status& status) {
  if (!status.ok()) raise(status);
}

// Runs Python's signal handlers where a signal came. True: one of them raised, and the exception
// (KeyboardInterrupt) is set in this thread. Takes the GIL itself.
bool interrupted();

// An array's third number, beside address and count: its dtype, plus 256 for device cuda:0, 512 for
// cuda:1 and so on.
struct Placed {
  DataType dtype = DataType::kUInt8;
  Device device;
};
Placed placed(int number);

// The stream that the caller works in, on a GPU. Needs the GIL.
Stream current_stream(int device);

// Waits for the operation to end, without the GIL; or has `stream` wait for it, where there is one.
// Where a signal handler raises, ends the group on every rank, waits for the end that this brings,
// and sets `was_interrupted`.
Status wait_interruptibly(Work& work, const Stream* stream,
                          const std::shared_ptr<Communicator>& communicator, bool* was_interrupted);

// Wraps an operation for Python. It holds `keep` (arrays, contexts) until the operation has ended,
// also where the handle is dropped before that.
nb::object make_work(Work work, const Device& device,
                     const std::shared_ptr<Communicator>& communicator, nb::object keep,
                     bool keeps_memory = false);

// Keeps all that the calling Python functions hold for as long as the process lives: their arrays
// may still be written to.
void keep_callers_memory();

// `object`: None, a store of this module, or any Python object with set, get, add and name, which
// is left alone once `abandoned` is set.
std::shared_ptr<Store> store_from(nb::handle object,
                                  const std::shared_ptr<std::atomic<bool>>& abandoned);

}  // namespace ciuic::python
