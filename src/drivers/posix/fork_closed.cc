// SPDX-License-Identifier: Apache-2.0
// fork_closed.cc: one bit a descriptor, and the handlers that run at a fork.
//
// In the child only what is safe in a signal handler may be called, since other threads may have
// held any lock; so the marks are a table of fixed size, of which pages that are never touched take
// no memory.

#include "drivers/posix/fork_closed.h"

#include <pthread.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>

#include "base/assert.h"

namespace ciuic::posix {

// Linux hands out no higher ones, unless fs.nr_open was raised: those are not closed by children.
static constexpr int kMarks = 1 << 20;
static constexpr int kBits = 64;

static std::array<std::atomic<uint64_t>, kMarks / kBits> marks;
static std::atomic<int> words_used{0};  // words of `marks` that were ever set

// A thread that forks goes before those that come later; else it might wait for long.
static pthread_rwlock_t forking = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;

static void before_fork() { pthread_rwlock_wrlock(&forking); }

static void in_parent() { pthread_rwlock_unlock(&forking); }

static void in_child() {
  const int used = words_used.load(std::memory_order_relaxed);
  for (int word = 0; word < used; ++word) {
    const uint64_t bits = marks[static_cast<size_t>(word)].exchange(0, std::memory_order_relaxed);
    if (bits == 0) continue;
    for (int bit = 0; bit < kBits; ++bit) {
      if ((bits >> bit & 1) != 0) ::close(word * kBits + bit);
    }
  }
  // Threads that waited for the lock are not here, but are counted in it.
  pthread_rwlock_unlock(&forking);
  pthread_rwlockattr_t kind;
  pthread_rwlockattr_init(&kind);
  pthread_rwlockattr_setkind_np(&kind, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
  pthread_rwlock_init(&forking, &kind);
}

static void register_handlers() {
  static const int registered = pthread_atfork(before_fork, in_parent, in_child);
  (void)registered;
}

ForkHold::ForkHold() {
  register_handlers();
  pthread_rwlock_rdlock(&forking);
}

ForkHold::~ForkHold() {
  const int saved = errno;
  pthread_rwlock_unlock(&forking);
  errno = saved;
}

void mark_fork_closed(int fd) {
  CIUIC_ASSERT(fd >= 0);
  if (fd >= kMarks) return;
  register_handlers();
  const int word = fd / kBits;
  marks[static_cast<size_t>(word)].fetch_or(uint64_t{1} << fd % kBits, std::memory_order_relaxed);
  int used = words_used.load(std::memory_order_relaxed);
  while (used <= word &&
         !words_used.compare_exchange_weak(used, word + 1, std::memory_order_relaxed)) {
  }
}

void unmark_fork_closed(int fd) {
  if (fd < 0 || fd >= kMarks) return;
  marks[static_cast<size_t>(fd / kBits)].fetch_and(~(uint64_t{1} << fd % kBits),
                                                   std::memory_order_relaxed);
}

}  // namespace ciuic::posix
