// SPDX-License-Identifier: Apache-2.0
// assert.h: CIUIC_ASSERT, for what only a fault of this library can bring about. In every build.
//
// Never on what a caller, a peer or a file can cause; that is a Status.
#pragma once

namespace ciuic {

// What is called before the abort, to save what shows how it came to this. Replaces the one before;
// null: nothing.
void on_assertion_failure(void (*save)());

// Writes the place and the condition to stderr, saves, then aborts.
[[noreturn]] void assertion_failed(const char* condition, const char* file, int line);

}  // namespace ciuic

#define CIUIC_ASSERT(condition)                                  \
  do {                                                           \
    if (!(condition)) [[unlikely]]                               \
      ::ciuic::assertion_failed(#condition, __FILE__, __LINE__); \
  } while (false)
