// SPDX-License-Identifier: Apache-2.0
// fd_passing.cc: sendmsg and recvmsg with SCM_RIGHTS.

#include "drivers/posix/fd_passing.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstddef>
#include <cstring>

#include "base/assert.h"
#include "drivers/posix/fork_closed.h"
#include "drivers/posix/system_status.h"

namespace ciuic::posix {

struct AbstractAddress {
  sockaddr_un name{};
  socklen_t bytes = 0;
};

static Result<AbstractAddress> abstract_address(const std::string& name) {
  AbstractAddress address;
  if (name.empty() || name.size() > 100) {
    return Status(StatusCode::kInvalidArgument,
                  "a name of 1 to 100 bytes is needed, not " + std::to_string(name.size()));
  }
  address.name.sun_family = AF_UNIX;
  std::memcpy(address.name.sun_path + 1, name.data(), name.size());
  address.bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

static UniqueFd unix_socket() {
  return make_fork_closed(
      [] { return ::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0); });
}

Result<UniqueFd> listen_abstract(const std::string& name, int backlog) {
  Result<AbstractAddress> address = abstract_address(name);
  if (!address.ok()) return address.status();
  UniqueFd fd = unix_socket();
  if (!fd) return system_status("socket", errno);
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address->name), address->bytes) != 0 ||
      ::listen(fd.get(), backlog) != 0) {
    return system_status("listen at the Unix socket @" + name, errno);
  }
  return fd;
}

Result<UniqueFd> connect_abstract(const std::string& name) {
  Result<AbstractAddress> address = abstract_address(name);
  if (!address.ok()) return address.status();
  UniqueFd fd = unix_socket();
  if (!fd) return system_status("socket", errno);
  const auto* where = reinterpret_cast<const sockaddr*>(&address->name);
  while (::connect(fd.get(), where, address->bytes) != 0) {
    if (errno == EINTR) continue;
    if (errno == EAGAIN) return UniqueFd();
    const std::string what = "connect to the Unix socket @" + name;
    if (errno == ECONNREFUSED || errno == ENOENT) {
      return Status(StatusCode::kPeerLost, what + ": " + errno_text(errno));
    }
    return system_status(what, errno);
  }
  return fd;
}

Result<size_t> send_with_fds(int socket, const void* data, size_t bytes, std::span<const int> fds) {
  CIUIC_ASSERT(fds.size() <= kMaxPassedFds && bytes > 0);
  iovec part{const_cast<void*>(data), bytes};
  alignas(cmsghdr) char control[CMSG_SPACE(kMaxPassedFds * sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (!fds.empty()) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(rights), fds.data(), fds.size_bytes());
  }
  while (true) {
    const ssize_t count = ::sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count >= 0) return static_cast<size_t>(count);
    if (errno == EINTR) continue;
    if (errno == EAGAIN || errno == EWOULDBLOCK) return size_t{0};
    if (errno == EPIPE || errno == ECONNRESET) {
      return Status(StatusCode::kPeerLost, "send: " + errno_text(errno));
    }
    return system_status("sendmsg", errno);
  }
}

Result<size_t> receive_with_fds(int socket, void* data, size_t bytes, std::vector<UniqueFd>* fds) {
  iovec part{data, bytes};
  alignas(cmsghdr) char control[CMSG_SPACE(kMaxPassedFds * sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  ssize_t count = 0;
  do {
    count = ::recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  } while (count < 0 && errno == EINTR);
  if (count < 0) {
    if (errno == EAGAIN || errno == EWOULDBLOCK) return size_t{0};
    return Status(StatusCode::kPeerLost, "receive: " + errno_text(errno));
  }
  for (cmsghdr* part_of = CMSG_FIRSTHDR(&message); part_of != nullptr;
       part_of = CMSG_NXTHDR(&message, part_of)) {
    if (part_of->cmsg_level != SOL_SOCKET || part_of->cmsg_type != SCM_RIGHTS) continue;
    const size_t passed = (part_of->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < passed; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(part_of) + i * sizeof(int), sizeof fd);
      fds->emplace_back(fd);
    }
  }
  if (count == 0 && bytes > 0) {
    return Status(StatusCode::kPeerLost, "the peer closed the connection");
  }
  return static_cast<size_t>(count);
}

}  // namespace ciuic::posix
