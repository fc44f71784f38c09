// SPDX-License-Identifier: Apache-2.0
// socket_parts.h: sends from, and receives into, several pieces of memory with one system call.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <span>

#include "ciuic/status.h"

namespace ciuic::posix {

// How many bytes went; 0: none can now. kPeerLost: the connection is gone.
Result<size_t> send_parts(int fd, std::span<iovec> parts);

// How many bytes came; 0: none are there now. kClosed: end of stream. kPeerLost: the connection is
// gone. At least one part has room.
Result<size_t> receive_parts(int fd, std::span<iovec> parts);

}  // namespace ciuic::posix
