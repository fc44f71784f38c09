// SPDX-License-Identifier: Apache-2.0
// errors_py.cc: a Status becomes the exception that the table of ciuic/errors.py has for its code.

#include <nanobind/stl/string.h>

#include "module.h"

namespace ciuic::python {

// Set once, when ciuic.errors is imported; never freed, because errors may be raised until the
// interpreter is gone.
static PyObject* error_factory = nullptr;

void raise(const Status& status) {
  if (error_factory == nullptr) {
    PyErr_SetString(PyExc_RuntimeError, status.message().c_str());
    throw nb::python_error();
  }
  // A message may quote a file, a variable or a launcher: bytes that are no UTF-8 must not make
  // another error of it.
  const std::string& message = status.message();
  const nb::object text = nb::steal(
      PyUnicode_DecodeUTF8(message.data(), static_cast<Py_ssize_t>(message.size()), "replace"));
  const nb::object error = nb::handle(error_factory)(static_cast<int>(status.code()), text);
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
  throw nb::python_error();
}

bool interrupted() {
  const nb::gil_scoped_acquire gil;
  return PyErr_CheckSignals() != 0;
}

void bind_errors(nb::module_& module) {
  module.def(
      "set_error_factory",
      [](nb::object factory) {
        Py_XDECREF(error_factory);
        error_factory = factory.release().ptr();
      },
      nb::arg("factory"),
      "Sets the function (code, message) -> exception for every failed Status.");

  nb::dict codes;
  for (int code = 0; code <= static_cast<int>(StatusCode::kSystem); ++code) {
    codes[name_of(static_cast<StatusCode>(code))] = code;
  }
  module.attr("status_codes") = codes;
}

}  // namespace ciuic::python
