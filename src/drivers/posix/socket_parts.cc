// SPDX-License-Identifier: Apache-2.0
// socket_parts.cc: sendmsg and recvmsg.

#include "drivers/posix/socket_parts.h"

#include <sys/socket.h>

#include <cerrno>

#include "drivers/posix/system_status.h"

namespace ciuic::posix {

static msghdr message_of(std::span<iovec> parts) {
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = parts.size();
  return message;
}

Result<size_t> send_parts(int fd, std::span<iovec> parts) {
  const msghdr message = message_of(parts);
  while (true) {
    const ssize_t count = ::sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count >= 0) return static_cast<size_t>(count);
    if (errno == EINTR) continue;
    if (errno == EAGAIN || errno == EWOULDBLOCK) return size_t{0};
    return Status(StatusCode::kPeerLost, "send: " + errno_text(errno));
  }
}

Result<size_t> receive_parts(int fd, std::span<iovec> parts) {
  msghdr message = message_of(parts);
  while (true) {
    const ssize_t count = ::recvmsg(fd, &message, MSG_DONTWAIT);
    if (count > 0) return static_cast<size_t>(count);
    if (count == 0) return Status(StatusCode::kClosed, "end of stream");
    if (errno == EINTR) continue;
    if (errno == EAGAIN || errno == EWOULDBLOCK) return size_t{0};
    return Status(StatusCode::kPeerLost, "receive: " + errno_text(errno));
  }
}

}  // namespace ciuic::posix
