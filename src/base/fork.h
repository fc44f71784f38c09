// SPDX-License-Identifier: Apache-2.0
// fork.h: whether this process is still the one in which something was made.
#pragma once

#include <cstdint>

namespace ciuic {

// How many forks lie between the first call in a process and this one, each counted in the child. A
// load; no system call.
uint32_t fork_generation();

}  // namespace ciuic
