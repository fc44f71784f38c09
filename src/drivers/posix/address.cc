// SPDX-License-Identifier: Apache-2.0
// address.cc: parsing, printing and resolving addresses.

#include "drivers/posix/address.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>

#include <charconv>
#include <cstring>
#include <memory>

#include "base/printable.h"
namespace ciuic::posix {

static Status bad_address(std::string_view text, std::string_view why) {
  return Status(StatusCode::kInvalidArgument,
                fmt::format("\"{}\" is no address: {} (write 10.0.0.1:4711 or [fd00::1]:4711)",
                            printable(text, 128), why));
}

Result<Address> split_host_port(std::string_view text) {
  std::string_view host;
  std::string_view port;
  if (!text.empty() && text.front() == '[') {
    const size_t end = text.find(']');
    if (end == std::string_view::npos) return bad_address(text, "a bracket is not closed");
    host = text.substr(1, end - 1);
    port = text.substr(end + 1);
    if (port.empty() || port.front() != ':') return bad_address(text, "no port after the bracket");
    port.remove_prefix(1);
  } else {
    const size_t colon = text.rfind(':');
    if (colon == std::string_view::npos) return bad_address(text, "no port");
    host = text.substr(0, colon);
    port = text.substr(colon + 1);
    if (host.find(':') != std::string_view::npos) {
      return bad_address(text, "IPv6 stands in brackets");
    }
  }
  if (host.empty()) return bad_address(text, "no host");
  unsigned number = 0;
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), number);
  if (port.empty() || error != std::errc{} || end != port.data() + port.size() || number > 65535) {
    return bad_address(text, "the port is no number from 0 to 65535");
  }
  return Address{std::string(host), static_cast<uint16_t>(number)};
}

Result<Address> Address::parse(std::string_view text) {
  Result<Address> address = split_host_port(text);
  if (!address.ok()) return address;
  Result<SocketAddress> checked = to_socket_address(*address);
  if (!checked.ok()) return bad_address(text, "the host is not numeric");
  return from_socket_address(checked->get());
}

std::string Address::format() const {
  return is_v6() ? fmt::format("[{}]:{}", text, port) : fmt::format("{}:{}", text, port);
}

bool Address::is_loopback() const {
  return text.starts_with("127.") || text == "::1" || text.starts_with("::ffff:127.");
}

bool Address::is_any() const { return text == "0.0.0.0" || text == "::"; }

using AddrInfo = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

static Result<AddrInfo> look_up(const std::string& host, uint16_t port, int flags) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list);
  if (error != 0) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("host \"{}\": {}", printable(host, 256), gai_strerror(error)));
  }
  return AddrInfo(list, &freeaddrinfo);
}

Result<std::vector<Address>> resolve(const std::string& host, uint16_t port) {
  Result<AddrInfo> list = look_up(host, port, 0);
  if (!list.ok()) return list.status();
  std::vector<Address> found;
  for (const addrinfo* entry = list->get(); entry != nullptr; entry = entry->ai_next) {
    Result<Address> address = from_socket_address(entry->ai_addr);
    if (address.ok()) found.push_back(std::move(*address));
  }
  if (found.empty()) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("host \"{}\" has no IPv4 or IPv6 address", printable(host, 256)));
  }
  return found;
}

Result<SocketAddress> to_socket_address(const Address& address) {
  // getaddrinfo reads the scope of a link-local address, which inet_pton does not.
  Result<AddrInfo> list = look_up(address.text, address.port, AI_NUMERICHOST);
  if (!list.ok()) return list.status();
  SocketAddress result;
  result.bytes = (*list)->ai_addrlen;
  std::memcpy(&result.storage, (*list)->ai_addr, result.bytes);
  return result;
}

Result<Address> from_socket_address(const sockaddr* address) {
  char text[INET6_ADDRSTRLEN] = {};
  if (address->sa_family == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(address);
    inet_ntop(AF_INET, &v4->sin_addr, text, sizeof text);
    return Address{text, ntohs(v4->sin_port)};
  }
  if (address->sa_family == AF_INET6) {
    const auto* v6 = reinterpret_cast<const sockaddr_in6*>(address);
    inet_ntop(AF_INET6, &v6->sin6_addr, text, sizeof text);
    std::string host = text;
    char name[IF_NAMESIZE] = {};
    if (v6->sin6_scope_id != 0) {
      // The resolver takes names of interfaces back for link-local addresses alone.
      const bool named = IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr) &&
                         if_indextoname(v6->sin6_scope_id, name) != nullptr;
      host += "%" + (named ? std::string(name) : std::to_string(v6->sin6_scope_id));
    }
    return Address{std::move(host), ntohs(v6->sin6_port)};
  }
  return Status(StatusCode::kInvalidArgument, "neither an IPv4 nor an IPv6 address");
}

}  // namespace ciuic::posix
