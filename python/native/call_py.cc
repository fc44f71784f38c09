// SPDX-License-Identifier: Apache-2.0
// call_py.cc: Call, one call of an operation as a value. An array comes as address and count, as in
// communicator_py.cc.

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <utility>
#include <vector>

#include "module.h"

namespace ciuic::python {
namespace {

void make_call(Call* place, int operation, std::pair<uintptr_t, int64_t> input,
               std::pair<uintptr_t, int64_t> output, int dtype, int op, int root, int peer, int tag,
               bool uneven, std::vector<int64_t> input_counts, std::vector<int64_t> output_counts) {
  const auto [type, device] = placed(dtype);
  new (place)
      Call{.operation = static_cast<Operation>(operation),
           .input = {reinterpret_cast<const void*>(input.first), input.second, type, device},
           .output = {reinterpret_cast<void*>(output.first), output.second, type, device},
           .op = static_cast<ReduceOp>(op),
           .root = root,
           .peer = peer,
           .tag = tag,
           .uneven = uneven,
           .input_counts = std::move(input_counts),
           .output_counts = std::move(output_counts)};
}

}  // namespace

void bind_call(nb::module_& module) {
  using Counts = std::vector<int64_t>;
  nb::class_<Call>(module, "Call", "One call of an operation; see include/ciuic/call.h.")
      .def("__init__", &make_call, nb::arg("operation"),
           nb::arg("input") = std::pair<uintptr_t, int64_t>(),
           nb::arg("output") = std::pair<uintptr_t, int64_t>(), nb::arg("dtype") = 0,
           nb::arg("op") = 0, nb::arg("root") = 0, nb::arg("peer") = 0, nb::arg("tag") = 0,
           nb::arg("uneven") = false, nb::arg("input_counts") = Counts(),
           nb::arg("output_counts") = Counts())
      .def_prop_ro("operation", [](const Call& call) { return name_of(call.operation); })
      .def_ro("root", &Call::root)
      .def(
          "use", [](Call& call, const std::string& algorithm) { call.algorithm = algorithm; },
          nb::arg("algorithm"));
  nb::dict codes;
  for (int code = 0; code <= static_cast<int>(Operation::kRecv); ++code) {
    codes[name_of(static_cast<Operation>(code))] = code;
  }
  module.attr("operation_codes") = codes;
  module.attr("MAX_TAG") = kMaxTag;
}

}  // namespace ciuic::python
