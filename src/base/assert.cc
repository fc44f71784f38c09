// SPDX-License-Identifier: Apache-2.0
// assert.cc: where a fault of this library ends the process.

#include "base/assert.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>

namespace ciuic {

static std::atomic<void (*)()> save_before_abort{nullptr};

void on_assertion_failure(void (*save)()) { save_before_abort.store(save); }

void assertion_failed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "ciuic: internal fault at %s:%d: %s does not hold\n", file, line, condition);
  // Once: what it calls may itself fail.
  if (void (*save)() = save_before_abort.exchange(nullptr)) save();
  std::abort();
}

}  // namespace ciuic
