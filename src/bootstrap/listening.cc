// SPDX-License-Identifier: Apache-2.0
// listening.cc: listeners within the range of ports, and an address outside a NAT.

#include "bootstrap/listening.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/log.h"
#include "base/printable.h"
#include "drivers/posix/socket.h"

namespace ciuic::bootstrap {

static Status wrong(const std::string& advertise, const std::string& why) {
  return {StatusCode::kInvalidArgument,
          fmt::format("CIUIC_ADVERTISE_ADDRESS={}: {}", printable(advertise, 128), why)};
}

// The address as the system writes it; nothing where it is none, or one of the short forms (10.1).
static std::optional<posix::Address> numeric(const posix::Address& address) {
  const bool whole =
      address.is_v6() || std::count(address.text.begin(), address.text.end(), '.') == 3;
  Result<posix::SocketAddress> socket = posix::to_socket_address(address);
  if (!whole || !socket.ok()) return std::nullopt;
  Result<posix::Address> written = posix::from_socket_address(socket->get());
  if (!written.ok() || written->is_any()) return std::nullopt;
  return *written;
}

Result<Listening> Listening::from(const std::string& advertise, PortRange ports) {
  Listening listening{.ports = ports, .advertised = {}};
  if (advertise.empty()) return listening;
  if (std::optional<posix::Address> plain = numeric({advertise, 0})) {
    listening.advertised = *plain;
    return listening;
  }
  Result<posix::Address> split = posix::split_host_port(advertise);
  std::optional<posix::Address> address = split.ok() ? numeric(*split) : std::nullopt;
  if (!address || address->port == 0) {
    return wrong(advertise, "neither a numeric address nor address:port");
  }
  if (ports.any()) {
    return wrong(advertise,
                 "a port stands for the first one of CIUIC_PORT_RANGE, which is not set");
  }
  if (address->port + ports.count() - 1 > UINT16_MAX) {
    return wrong(advertise, fmt::format("the {} ports of CIUIC_PORT_RANGE={}-{} have no room there",
                                        ports.count(), ports.first, ports.last));
  }
  listening.advertised = *address;
  return listening;
}

void prefer_own(Listening* listening, std::vector<std::string>* texts) {
  const auto own = std::find(texts->begin(), texts->end(), listening->advertised.text);
  if (own == texts->end()) return;
  std::rotate(texts->begin(), own, own + 1);
  listening->advertised = {};
}

Status listen_at_all(const std::vector<std::string>& texts, const Listening& listening,
                     std::vector<posix::UniqueFd>* listeners, std::vector<posix::Address>* at) {
  Status last;
  bool any = texts.empty();
  for (const std::string& text : texts) {
    Result<posix::UniqueFd> fd = posix::listen_within(listening.ports, text);
    if (!fd.ok()) {
      // An address that cannot be listened at is not given to anybody.
      last = fd.status();
      log_info("not listening at {}: {}", text, last.message());
      continue;
    }
    Result<posix::Address> address = posix::local_address(fd->get());
    if (!address.ok()) return address.status();
    at->push_back({text, address->port});
    listeners->push_back(std::move(*fd));
    any = true;
  }
  return any ? Status() : last;
}

void advertise(const Listening& listening, std::vector<posix::Address>* at) {
  if (listening.advertised.text.empty() || at->empty()) return;
  const bool v6 = listening.advertised.is_v6();
  auto own = std::find_if(at->begin(), at->end(),
                          [v6](const posix::Address& address) { return address.is_v6() == v6; });
  if (own == at->end()) own = at->begin();
  posix::Address outside{listening.advertised.text, own->port};
  if (listening.advertised.port != 0) {
    const int offset = own->port - listening.ports.first;
    outside.port = static_cast<uint16_t>(listening.advertised.port + offset);
  }
  std::erase_if(*at, [&](const posix::Address& address) { return address.text == outside.text; });
  at->insert(at->begin(), outside);
}

}  // namespace ciuic::bootstrap
