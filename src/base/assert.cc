// SPDX-License-Identifier: Apache-2.0
// assert.cc: where a fault of this library ends the process.

#include "base/assert.h"

#include <cstdio>
#include <cstdlib>

namespace ciuic {

void assertion_failed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "ciuic: internal fault at %s:%d: %s does not hold\n", file, line, condition);
  std::abort();
}

}  // namespace ciuic
