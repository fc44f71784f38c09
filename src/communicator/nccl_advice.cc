// SPDX-License-Identifier: Apache-2.0
// nccl_advice.cc: what a launcher gives its children.

#include <utility>

#include "backend/nccl/nccl_settings.h"
#include "base/config.h"
#include "ciuic/nccl.h"

namespace ciuic {

NcclAdvice nccl_advice(size_t buffer_size) {
  backend::NcclSettings settings =
      backend::nccl_settings(backend::nccl_facts(buffer_size), environment_variable);
  NcclAdvice advice;
  for (backend::NcclVariable& each : settings.variables) {
    if (each.source != "ciuic") continue;
    advice.variables.push_back({std::move(each.name), std::move(each.value), std::move(each.why)});
  }
  advice.warnings = std::move(settings.warnings);
  return advice;
}

}  // namespace ciuic
