// SPDX-License-Identifier: Apache-2.0
// module.cc: ciuic._native, the C++ core as Python sees it. The package's own words are in
// python/ciuic; nothing here is meant to be called by a user.

#include "module.h"

#include "ciuic/version.h"

NB_MODULE(_native, module) {
  using namespace ciuic::python;

  // Objects that live until the interpreter ends are not worth a warning to the user.
  nb::set_leak_warnings(false);
  if (ciuic::abi() != CIUIC_ABI) {
    throw nb::import_error(
        "ciuic._native was built for another libciuic.so than the one loaded; "
        "reinstall ciuic");
  }
  bind_errors(module);
  bind_array(module);
  bind_store(module);
  bind_work(module);
  bind_call(module);
  bind_communicator(module);
  bind_cuda(module);
  bind_plan(module);
  bind_info(module);
  bind_launch(module);
  bind_trace(module);
#ifdef CIUIC_HAS_BENCH
  bind_bench(module);
#endif
}
