// SPDX-License-Identifier: Apache-2.0
// timer_fd.h: a descriptor that becomes readable at a moment, so that a poller wakes then,
// or a thread that waits for nothing else.
#pragma once

#include "base/clock.h"
#include "ciuic/status.h"
#include "drivers/posix/unique_fd.h"

namespace ciuic::posix {

Result<UniqueFd> create_timer();

// Readable once `at` has come, instead of what was set before; kNever: not at all.
void set_timer(int fd, TimeNs at);

// Sleeps until it is readable, and makes it unreadable.
void await_timer(int fd);

}  // namespace ciuic::posix
