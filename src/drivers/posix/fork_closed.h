// SPDX-License-Identifier: Apache-2.0
// fork_closed.h: descriptors that a child made by fork() closes at once.
//
// A connection ends when the last copy of its descriptor is closed. A forked child, such as a data
// loader's worker, would keep a copy of each, and so keep the death of its parent from the peers.
// All sockets of this folder are such descriptors; UniqueFd holds them. What starts a program, by
// exec, needs none of this: all descriptors of this library are closed on exec.
//
// Any thread may call. While one forks, making and closing these descriptors waits.
#pragma once

#include <cstdint>

#include "drivers/posix/unique_fd.h"

namespace ciuic::posix {

// Keeps fork() from coming between two steps, such as making a descriptor and marking it. For
// non-blocking calls only, and not nested.
class ForkHold {
 public:
  ForkHold();
  ~ForkHold();  // errno stays as it was
  ForkHold(const ForkHold&) = delete;
  ForkHold& operator=(const ForkHold&) = delete;
};

// Owns what `make()` returns: a descriptor, or -1 and errno. Forked children close it.
template <typename Make>
UniqueFd make_fork_closed(Make make) {
  const ForkHold hold;
  UniqueFd fd(make());
  fd.close_in_children();
  return fd;
}

// The marks themselves, for UniqueFd; under a ForkHold.
void mark_fork_closed(int fd);
void unmark_fork_closed(int fd);

}  // namespace ciuic::posix
