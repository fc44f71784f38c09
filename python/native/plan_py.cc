// SPDX-License-Identifier: Apache-2.0
// plan_py.cc: which algorithm a call gets, as `ciuic plan` prints it.

#include <nanobind/stl/string.h>

#include "module.h"

namespace ciuic::python {

void bind_plan(nb::module_& module) { (void)module; }

}  // namespace ciuic::python
