// SPDX-License-Identifier: Apache-2.0
// socket.cc: TCP sockets on the system's calls.

#include "drivers/posix/socket.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "drivers/posix/fork_closed.h"
#include "drivers/posix/port_holder.h"
#include "drivers/posix/process.h"
#include "drivers/posix/system_status.h"

namespace ciuic::posix {

static UniqueFd stream_socket(const SocketAddress& where) {
  return make_fork_closed([&] {
    return ::socket(where.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  });
}

// 0, or the error; the socket is in `fd` then.
static int try_to_listen(const SocketAddress& where, bool any_family, int backlog, UniqueFd* fd) {
  *fd = stream_socket(where);
  if (!*fd) return errno;
  // Connections of an earlier job in TIME_WAIT do not keep the port; a listener does.
  const int on = 1;
  setsockopt(fd->get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (where.storage.ss_family == AF_INET6) {
    const int only_v6 = any_family ? 0 : 1;
    setsockopt(fd->get(), IPPROTO_IPV6, IPV6_V6ONLY, &only_v6, sizeof only_v6);
  }
  // Two may both be bound, and only one then listen.
  const bool good =
      ::bind(fd->get(), where.get(), where.bytes) == 0 && ::listen(fd->get(), backlog) == 0;
  return good ? 0 : errno;
}

Result<UniqueFd> listen_at(const Address& address, int backlog) {
  Result<SocketAddress> where = to_socket_address(address);
  if (!where.ok()) return where.status();
  UniqueFd fd;
  const int error = try_to_listen(*where, address.is_any(), backlog, &fd);
  if (error == 0) return fd;
  if (!fd) return system_status("socket for " + address.format(), error);
  std::string what = "listen at " + address.format();
  if (error == EADDRINUSE) {
    const std::string holder = port_holder(address.port);
    what += holder.empty() ? "" : ": the port is held by " + holder;
  }
  return system_status(what, error);
}

Result<UniqueFd> listen_within(PortRange ports, const std::string& text) {
  if (ports.any()) return listen_at({text, 0});
  Result<uint64_t> random = random_uint64();  // ranks of one host do not all begin at one port
  if (!random.ok()) return random.status();
  const auto count = static_cast<uint64_t>(ports.count());
  for (uint64_t i = 0; i < count; ++i) {
    const Address address{text, static_cast<uint16_t>(ports.first + (*random + i) % count)};
    Result<SocketAddress> where = to_socket_address(address);
    if (!where.ok()) return where.status();
    UniqueFd fd;
    const int error = try_to_listen(*where, address.is_any(), SOMAXCONN, &fd);
    if (error == 0) return fd;
    if (error != EADDRINUSE) return system_status("listen at " + address.format(), error);
  }
  return Status(
      StatusCode::kResource,
      fmt::format("no port of CIUIC_PORT_RANGE={}-{} is free at {}: each is in use. Every rank "
                  "of a host takes one, rank 0 two; make the range wider",
                  ports.first, ports.last, text));
}

Result<UniqueFd> copy_socket(int fd) {
  UniqueFd copy = make_fork_closed([&] { return ::fcntl(fd, F_DUPFD_CLOEXEC, 0); });
  if (!copy) return system_status("fcntl(F_DUPFD_CLOEXEC)", errno);
  return copy;
}

Result<UniqueFd> accept_from(int listener) {
  while (true) {
    UniqueFd fd = make_fork_closed(
        [&] { return ::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC); });
    if (fd) {
      set_no_delay(fd.get());
      return fd;
    }
    if (errno == EAGAIN || errno == EWOULDBLOCK) return UniqueFd();
    // The connection that was waiting has gone again; so may the next, or be fine.
    if (errno == EINTR || errno == ECONNABORTED) continue;
    const int error = errno;
    // Linux wants a descriptor before it looks whether there is anybody to give it to.
    pollfd entry{listener, POLLIN, 0};
    if (::poll(&entry, 1, 0) == 0) return UniqueFd();
    return system_status("accept", error);
  }
}

Result<UniqueFd> start_connect(const Address& address) {
  Result<SocketAddress> where = to_socket_address(address);
  if (!where.ok()) return where.status();
  UniqueFd fd = stream_socket(*where);
  if (!fd) return system_status("socket for " + address.format(), errno);
  set_no_delay(fd.get());
  if (::connect(fd.get(), where->get(), where->bytes) == 0) return fd;
  if (errno == EINPROGRESS || errno == EINTR) return fd;
  return system_status("connect to " + address.format(), errno);
}

Status connect_result(int fd, const Address& address) {
  int error = 0;
  socklen_t bytes = sizeof error;
  if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &bytes) != 0) error = errno;
  if (error != 0) return system_status("connect to " + address.format(), error);
  // A port of this host from the range of outgoing ones may connect to itself while nobody listens.
  Result<Address> local = local_address(fd);
  Result<Address> peer = peer_address(fd);
  if (!peer.ok()) return system_status("connect to " + address.format(), ENOTCONN);
  if (local.ok() && *local == *peer) {
    return system_status("connect to " + address.format(), ECONNREFUSED);
  }
  return {};
}

Result<UniqueFd> connect_to(const Address& address, TimeNs deadline) {
  Result<UniqueFd> fd = start_connect(address);
  if (!fd.ok()) return fd;
  Result<bool> ready = wait_for(fd->get(), POLLOUT, deadline);
  if (!ready.ok()) return ready.status();
  if (!*ready)
    return Status(StatusCode::kTimeout, "connect to " + address.format() + ": no answer");
  CIUIC_RETURN_IF_ERROR(connect_result(fd->get(), address));
  return fd;
}

using NameCall = int (*)(int, sockaddr*, socklen_t*);

static Result<Address> name_of_end(NameCall call, int fd, const char* what) {
  sockaddr_storage storage{};
  socklen_t bytes = sizeof storage;
  if (call(fd, reinterpret_cast<sockaddr*>(&storage), &bytes) != 0) {
    return system_status(what, errno);
  }
  return from_socket_address(reinterpret_cast<const sockaddr*>(&storage));
}

Result<Address> local_address(int fd) { return name_of_end(&getsockname, fd, "getsockname"); }

Result<Address> peer_address(int fd) { return name_of_end(&getpeername, fd, "getpeername"); }

Result<Address> source_address_towards(const Address& destination) {
  Result<SocketAddress> where = to_socket_address(destination);
  if (!where.ok()) return where.status();
  UniqueFd fd(::socket(where->storage.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!fd) return system_status("socket for " + destination.format(), errno);
  // Connecting a datagram socket looks the route up and sends nothing.
  if (::connect(fd.get(), where->get(), where->bytes) != 0) {
    return system_status("route to " + destination.text, errno);
  }
  Result<Address> source = local_address(fd.get());
  if (source.ok()) source->port = 0;
  return source;
}

void set_no_delay(int fd) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

size_t unsent_bytes(int fd) {
  int bytes = 0;
  return ::ioctl(fd, SIOCOUTQNSD, &bytes) == 0 && bytes > 0 ? static_cast<size_t>(bytes) : 0;
}

Result<size_t> send_some(int fd, const void* data, size_t bytes) {
  while (true) {
    const ssize_t count = ::send(fd, data, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count >= 0) return static_cast<size_t>(count);
    if (errno == EINTR) continue;
    if (errno == EAGAIN || errno == EWOULDBLOCK) return size_t{0};
    return Status(StatusCode::kPeerLost, "send: " + errno_text(errno));
  }
}

Result<size_t> receive_some(int fd, void* data, size_t bytes) {
  if (bytes == 0) return size_t{0};
  while (true) {
    const ssize_t count = ::recv(fd, data, bytes, MSG_DONTWAIT);
    if (count > 0) return static_cast<size_t>(count);
    if (count == 0) return Status(StatusCode::kPeerLost, "the peer closed the connection");
    if (errno == EINTR) continue;
    if (errno == EAGAIN || errno == EWOULDBLOCK) return size_t{0};
    return Status(StatusCode::kPeerLost, "receive: " + errno_text(errno));
  }
}

Status send_all(int fd, const void* data, size_t bytes, TimeNs deadline) {
  const auto* next = static_cast<const std::byte*>(data);
  while (bytes > 0) {
    Result<size_t> count = send_some(fd, next, bytes);
    if (!count.ok()) return count.status();
    next += *count;
    bytes -= *count;
    if (*count > 0) continue;
    Result<bool> ready = wait_for(fd, POLLOUT, deadline);
    if (!ready.ok()) return ready.status();
    if (!*ready) return Status(StatusCode::kTimeout, "send: the peer took nothing in time");
  }
  return {};
}

Status receive_all(int fd, void* data, size_t bytes, TimeNs deadline) {
  auto* next = static_cast<std::byte*>(data);
  while (bytes > 0) {
    Result<size_t> count = receive_some(fd, next, bytes);
    if (!count.ok()) return count.status();
    next += *count;
    bytes -= *count;
    if (*count > 0) continue;
    Result<bool> ready = wait_for(fd, POLLIN, deadline);
    if (!ready.ok()) return ready.status();
    if (!*ready) return Status(StatusCode::kTimeout, "receive: the peer sent nothing in time");
  }
  return {};
}

int poll_timeout_ms(TimeNs deadline, TimeNs now, int limit_ms) {
  return static_cast<int>(std::min<int64_t>(left_ms(deadline, now), limit_ms));
}

Result<bool> wait_for(int fd, short events, TimeNs deadline) {
  pollfd entry{fd, events, 0};
  while (true) {
    const TimeNs now = now_ns();
    const int count = ::poll(&entry, 1, poll_timeout_ms(deadline, now));
    if (count > 0) return true;
    if (count < 0 && errno != EINTR) return system_status("poll", errno);
    if (now_ns() >= deadline) return false;
  }
}

}  // namespace ciuic::posix
