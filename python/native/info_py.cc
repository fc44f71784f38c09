// SPDX-License-Identifier: Apache-2.0
// info_py.cc: the library, its settings and this machine, as `ciuic info` prints them. The core is
// the only reader of the CIUIC_ variables; Python gets from here what it needs of them.

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include "base/config.h"
#include "base/size_text.h"
#include "ciuic/version.h"
#include "kernels/reduce.h"
#include "module.h"
#include "topology/host.h"
#include "topology/interfaces.h"

namespace ciuic::python {
namespace {

Config config_or_raise() {
  Result<Config> config = Config::from_environment();
  raise_unless_ok(config.status());
  return std::move(*config);
}

nb::dict config() {
  const Config config = config_or_raise();
  nb::dict result;
  result["timeout_ms"] = config.timeout_ms;
  result["buffer_size"] = config.buffer_size;
  result["backend"] = config.backend;
  result["log_level"] = name_of(config.log_level);
  result["store"] = config.store;
  result["trace_dir"] = config.trace_dir;
  return result;
}

nb::dict host() {
  Result<topology::Host> host = topology::this_host(config_or_raise().host_id);
  raise_unless_ok(host.status());
  nb::dict result;
  result["name"] = host->name;
  result["host_id"] = host->host_id;
  result["cores"] = host->cores;
  return result;
}

nb::list interfaces() {
  Result<std::vector<topology::Interface>> found = topology::list_interfaces();
  raise_unless_ok(found.status());
  nb::list result;
  for (const topology::Interface& interface : *found) {
    nb::dict row;
    row["name"] = interface.name;
    row["up"] = interface.up;
    row["loopback"] = interface.loopback;
    row["container"] = interface.container;
    row["addresses"] = nb::cast(interface.addresses);
    result.append(row);
  }
  return result;
}

}  // namespace

void bind_info(nb::module_& module) {
  module.def("version", [] { return ciuic::version(); });
  module.def("abi", [] { return ciuic::abi(); });
  module.def("config", &config, "The settings that Python needs itself.");
  module.def("settings_json", [] { return config_or_raise().to_json(); });
  module.def(
      "settings_warnings", [] { return config_or_raise().warnings; },
      "About variables that are no settings.");
  module.def("parse_size", &parse_size, nb::arg("text"), "Bytes of 64M, 1K, 100; None else.");
  module.def("format_size", &format_size, nb::arg("bytes"));
  module.def("host", &host);
  module.def("interfaces", &interfaces);
  module.def("simd_target", [] { return kernels::simd_target(); });
}

}  // namespace ciuic::python
