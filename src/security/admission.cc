// SPDX-License-Identifier: Apache-2.0
// admission.cc: the limit of the process, as it is now.

#include "security/admission.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>

namespace ciuic::security {

size_t most_unproven(size_t most) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return most;
  return std::clamp<size_t>(limit.rlim_cur / 4, 4, most);
}

std::string while_unable_to_accept(const std::string& who, const Status& accepted) {
  if (accepted.ok()) return "";
  return fmt::format("; connections wait that {} cannot accept: {}", who, accepted.message());
}

}  // namespace ciuic::security
