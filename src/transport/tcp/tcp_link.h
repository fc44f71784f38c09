// SPDX-License-Identifier: Apache-2.0
// tcp_link.h: a link over one TCP connection: 48-byte headers, payloads behind them.
//
// Connected when first needed: by whichever of the two has something to send first; where both
// begin at once, the lower rank's connection is the one that stays. Payloads are sent from where
// they lie and, from kDirectBytes on, read to where they shall go. The socket is read only when the
// poller's word says so; writing is tried at once.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ciuic/status.h"
#include "drivers/posix/address.h"
#include "drivers/posix/poller.h"
#include "drivers/posix/unique_fd.h"
#include "security/handshake.h"
#include "transport/link.h"
#include "transport/tcp/tcp_acceptor.h"

namespace ciuic::transport::tcp {

inline constexpr size_t kDirectBytes = 4 * 1024;

struct TcpLinkOptions {
  int peer = -1;                          // rank
  std::string peer_name;                  // for messages: "rank 3 (host-b)"
  std::vector<posix::Address> addresses;  // where the peer's acceptor listens, best first
  std::string secret;
  security::Identity identity;            // job, epoch, group, and this rank as `from`
  std::shared_ptr<TcpAcceptor> acceptor;  // this rank's; the peer may connect here
  posix::Poller* poller = nullptr;        // outlives the link
  int64_t connect_timeout_ms = 30'000;    // from the first need on
};

class TcpLink final : public Link {
 public:
  explicit TcpLink(TcpLinkOptions options);
  ~TcpLink() override;

  const char* transport() const override { return "tcp"; }
  size_t max_payload() const override { return wire::kMaxPayloadBytes; }
  bool progress() override;
  const Status& status() const override;
  bool can_send(size_t payload_bytes) override;  // the first call begins to connect
  void send(const wire::Header& header, const std::byte* payload,
            Publication* publication) override;
  uint64_t sent() const override;
  bool receive(Arrival* arrival) override;
  void place(std::byte* destination) override;
  void release(uint64_t token) override;
  void close() override;
  size_t buffer_bytes() const override;

  // For the acceptor: offers a proven connection of the peer. False: not wanted, another one stays.
  bool adopt(posix::UniqueFd* socket);

 private:
  struct State;  // in tcp_link.cc
  std::unique_ptr<State> state_;
};

}  // namespace ciuic::transport::tcp
