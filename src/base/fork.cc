// SPDX-License-Identifier: Apache-2.0
// fork.cc: counts forks by a handler that runs in the child.

#include "base/fork.h"

#include <pthread.h>

#include <atomic>

namespace ciuic {

static std::atomic<uint32_t> generation{0};

uint32_t fork_generation() {
  static const int registered =
      pthread_atfork(nullptr, nullptr, [] { generation.fetch_add(1, std::memory_order_relaxed); });
  (void)registered;
  return generation.load(std::memory_order_relaxed);
}

}  // namespace ciuic
