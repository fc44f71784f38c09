// SPDX-License-Identifier: Apache-2.0
// in_openssl.cc: a count of threads, and a word that stops further ones.

#include "security/in_openssl.h"

#include <pthread.h>
#include <sched.h>

#include <atomic>
#include <cstdlib>

namespace ciuic::security {

static std::atomic<int> threads_inside{0};
static std::atomic<bool> exits{false};

static void wait_for_threads() {
  exits.store(true);
  while (threads_inside.load() != 0) sched_yield();  // each is in one short call
}

static int register_handlers() {
  // A child has only the thread that forked it, which was in no function of OpenSSL.
  pthread_atfork(nullptr, nullptr, [] { threads_inside.store(0); });
  return std::atexit(wait_for_threads);
}

InOpenssl::InOpenssl() {
  threads_inside.fetch_add(1);
  allowed_ = !exits.load();
}

InOpenssl::~InOpenssl() { threads_inside.fetch_sub(1); }

void InOpenssl::guard_exit() {
  static const int registered = register_handlers();
  (void)registered;
}

Status process_exits() { return {StatusCode::kAborted, "the process is about to exit"}; }

}  // namespace ciuic::security
