// SPDX-License-Identifier: Apache-2.0
// address.h: an IPv4 or IPv6 address with a port, as a value.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ciuic/status.h"

namespace ciuic::posix {

struct Address {
  std::string text;  // numeric, no brackets: "10.0.0.1", "fd00::1", "fe80::1%eth0"
  uint16_t port = 0;

  bool operator==(const Address&) const = default;

  // "10.0.0.1:4711", "[fd00::1]:4711". The port is not left out. kInvalidArgument says what is
  // wrong; a host name is wrong here, resolve() takes those.
  static Result<Address> parse(std::string_view text);

  std::string format() const;
  bool is_v6() const { return text.find(':') != std::string::npos; }
  bool is_loopback() const;  // 127.0.0.0/8, ::1, ::ffff:127.0.0.0/104
  bool is_any() const;       // 0.0.0.0, ::
};

// "host:port" or "[host]:port" in two parts; the host is not looked at.
Result<Address> split_host_port(std::string_view text);

// All addresses of a host name, or the one of a numeric text, in the order of the resolver. Blocks
// as long as the resolver does. kInvalidArgument: no such name.
Result<std::vector<Address>> resolve(const std::string& host, uint16_t port);

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t bytes = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

Result<SocketAddress> to_socket_address(const Address& address);
Result<Address> from_socket_address(const sockaddr* address);

}  // namespace ciuic::posix
