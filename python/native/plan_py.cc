// SPDX-License-Identifier: Apache-2.0
// plan_py.cc: which algorithm a call gets, as `ciuic plan` prints it.

#include <nanobind/stl/string.h>

#include <string>

#include "ciuic/plan.h"
#include "module.h"

namespace ciuic::python {

void bind_plan(nb::module_& module) {
  module.def(
      "describe_plan",
      [](const std::string& operation, int ranks, const std::string& layout, int64_t bytes,
         const std::string& dtype, const std::string& op, const std::string& algorithm, int root,
         int rank) {
        const Result<std::string> described = describe_plan({.operation = operation,
                                                             .ranks = ranks,
                                                             .layout = layout,
                                                             .bytes = bytes,
                                                             .dtype = dtype,
                                                             .op = op,
                                                             .algorithm = algorithm,
                                                             .root = root,
                                                             .rank = rank});
        raise_unless_ok(described.status());
        return *described;
      },
      nb::arg("operation"), nb::arg("ranks"), nb::arg("layout"), nb::arg("bytes"), nb::arg("dtype"),
      nb::arg("op"), nb::arg("algorithm"), nb::arg("root"), nb::arg("rank"),
      "The JSON of include/ciuic/plan.h.");
}

}  // namespace ciuic::python
