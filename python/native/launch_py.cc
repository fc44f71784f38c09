// SPDX-License-Identifier: Apache-2.0
// launch_py.cc: who this process is, as its launcher says. The readers are the core's, so that
// programs in both languages see the same.

#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <map>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/config.h"
#include "bootstrap/environment.h"
#include "bootstrap/pmix_space.h"
#include "ciuic/nccl.h"
#include "module.h"

namespace ciuic::python {
namespace {

using bootstrap::Launched;

Launched find(int64_t timeout_ms) {
  Result<Launched> launched = [&] {
    const nb::gil_scoped_release no_gil;
    return bootstrap::find_launcher(environment_variable, deadline_after(now_ns(), timeout_ms));
  }();
  raise_unless_ok(launched.status());
  return std::move(*launched);
}

Launched read(const std::optional<std::map<std::string, std::string>>& variables) {
  const auto given = [&](const char* name) -> std::optional<std::string> {
    const auto found = variables->find(name);
    if (found == variables->end() || found->second.empty()) return std::nullopt;
    return found->second;
  };
  Result<Launched> launched =
      variables ? bootstrap::read_launcher(given) : bootstrap::read_launcher(environment_variable);
  raise_unless_ok(launched.status());
  return std::move(*launched);
}

}  // namespace

void bind_launch(nb::module_& module) {
  nb::class_<Launched>(module, "Launched", "Who a process is; -1 where the launcher does not say.")
      .def_ro("rank", &Launched::rank)
      .def_ro("size", &Launched::size)
      .def_ro("local_rank", &Launched::local_rank)
      .def_ro("local_size", &Launched::local_size)
      .def_ro("launcher", &Launched::launcher);
  module.def(
      "nccl_advice",
      [](size_t buffer_size) {
        const NcclAdvice advice = nccl_advice(buffer_size);
        nb::list variables;
        for (const NcclVariable& each : advice.variables) {
          variables.append(nb::make_tuple(each.name, each.value, each.why));
        }
        return nb::make_tuple(variables, advice.warnings);
      },
      nb::arg("buffer_size") = 0,
      "What this process's environment lacks for NCCL on this host: (name, value, why), warnings.");
  module.def("find_launcher", &find, nb::arg("timeout_ms"), "Of this process.");
  module.def("read_launcher", &read, nb::arg("variables") = nb::none(),
             "Of a process with these variables; of this one. Asks no launcher.");
}

}  // namespace ciuic::python
