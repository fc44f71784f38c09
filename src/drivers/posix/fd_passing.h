// SPDX-License-Identifier: Apache-2.0
// fd_passing.h: abstract Unix sockets, and descriptors that go to another process over them.
//
// Sockets are streams, non-blocking and closed on exec, and by forked children. An abstract name
// lives in the network namespace, not in the file system, and ends with its socket.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "ciuic/status.h"
#include "drivers/posix/unique_fd.h"

namespace ciuic::posix {

inline constexpr size_t kMaxPassedFds = 4;

// `name` without the leading zero byte, at most 100 bytes.
Result<UniqueFd> listen_abstract(const std::string& name, int backlog = 256);

// An invalid descriptor: the listener's queue is full at this moment, try again. kPeerLost: nobody
// listens under this name here.
Result<UniqueFd> connect_abstract(const std::string& name);

// Sends what it can and returns how many bytes; the descriptors went with the first of them. 0:
// none can go now. At most kMaxPassedFds descriptors.
Result<size_t> send_with_fds(int socket, const void* data, size_t bytes, std::span<const int> fds);

// Receives what is there, and appends descriptors that came with it; more than kMaxPassedFds at
// once are closed unseen. 0: nothing is there now. kPeerLost: end of stream.
Result<size_t> receive_with_fds(int socket, void* data, size_t bytes, std::vector<UniqueFd>* fds);

}  // namespace ciuic::posix
