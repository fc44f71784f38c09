// SPDX-License-Identifier: Apache-2.0
// admission.cc: the limit of the process, as it is now.

#include "security/admission.h"

#include <sys/resource.h>

#include <algorithm>

namespace ciuic::security {

size_t most_unproven(size_t most) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return most;
  return std::clamp<size_t>(limit.rlim_cur / 4, 4, most);
}

}  // namespace ciuic::security
