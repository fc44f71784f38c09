// SPDX-License-Identifier: Apache-2.0
// limits.h: what the system allows this process: descriptors, memory, threads. With words for an
// error that meets a limit: which one, its number, and how to raise it.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <thread>

#include "ciuic/status.h"

namespace ciuic::posix {

// How many more descriptors this process can open. Raises its soft limit towards the hard one, so
// that `wanted` can be, where that is possible; never lowers it.
size_t room_for_descriptors(size_t wanted);

// "this process has 60 descriptors open, and RLIMIT_NOFILE allows 64 (hard limit 64): ..."
std::string descriptor_advice();

// The same of the whole machine: "all processes of the machine together have 1000 files open, ...".
std::string open_files_advice();

// "the machine has 123456789 bytes available, and RLIMIT_AS allows this process ... of address
// space, ...". Only limits that there are.
std::string memory_advice();

// Bytes that this process can still have of the machine and of its control group, as far as they
// tell; shared memory takes them at once, and what takes more ends in the machine's OOM killer.
size_t available_memory();

// kResource where the system gives no thread; the message says what may limit them.
Result<std::thread> start_thread(std::function<void()> run);

}  // namespace ciuic::posix
