// SPDX-License-Identifier: Apache-2.0
// tcp_link.h: a link over one TCP connection: 48-byte headers, payloads behind them.
//
// Connected when first needed: by whichever of the two has something to send first; where both
// begin at once, the lower rank's connection is the one that stays. Payloads are sent from where
// they lie and, from kDirectBytes on, read to where they shall go. The socket is read only when the
// poller's word says so; writing is tried at once. With TLS (identity.tls) the same bytes go
// through a TlsSocket, which is asked where the socket is asked without.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ciuic/status.h"
#include "drivers/posix/address.h"
#include "drivers/posix/poller.h"
#include "drivers/posix/unique_fd.h"
#include "security/handshake.h"
#include "transport/link.h"
#include "transport/tcp/tcp_acceptor.h"
#include "transport/tcp/tcp_connector.h"
#include "transport/tcp/tcp_receiver.h"
#include "transport/tcp/tcp_sender.h"

namespace ciuic::transport::tcp {

struct TcpLinkOptions {
  int peer = -1;                          // rank
  std::string peer_name;                  // for messages: "rank 3 (host-b)"
  std::vector<posix::Address> addresses;  // where the peer's acceptor listens, best first
  std::string secret;
  security::Identity identity;            // job, epoch, group, and this rank as `from`
  std::shared_ptr<TcpAcceptor> acceptor;  // this rank's; the peer may connect here
  posix::Poller* poller = nullptr;        // outlives the link
  int64_t connect_timeout_ms = 30'000;    // in which the peer's system has to answer
};

class TcpLink final : public Link {
 public:
  explicit TcpLink(TcpLinkOptions options);
  ~TcpLink() override;

  const char* transport() const override { return "tcp"; }
  size_t max_payload() const override { return wire::kMaxPayloadBytes; }
  bool progress() override;
  const Status& status() const override { return status_; }
  bool can_send(size_t payload_bytes) override;  // the first call begins to connect
  void send(const wire::Header& header, const std::byte* payload,
            Publication* publication) override;
  uint64_t sent() const override { return sender_ ? sender_->sent() : 0; }
  bool receive(Arrival* arrival) override;
  void place(std::byte* destination) override;
  void release(uint64_t token) override;
  void peer_gone(const Status& why) override;
  void close() override;
  size_t buffer_bytes() const override;

  // For the acceptor: offers a proven connection of the peer. False: another one is kept.
  bool adopt(TcpConnection* connection);

 private:
  enum class Stage { kIdle, kConnecting, kConnected, kEnded };

  bool connect();
  void connected(TcpConnection connection);
  bool transfer();
  bool fill();
  void look_at_end();
  void say_goodbye(TimeNs deadline);
  bool wait_to_write(TimeNs deadline);
  void wait_until_sent(TimeNs deadline);
  bool drain();
  void fail(StatusCode code, const std::string& what);

  // Looked at in every pass.
  Stage stage_ = Stage::kIdle;
  std::atomic<uint32_t> ready_{0};
  bool readable_ = false;
  bool writable_ = false;
  bool hung_up_ = false;
  bool goodbye_ = false;  // the peer closed in good order
  bool read_ended_ = false;
  bool write_ended_ = false;
  bool closed_ = false;
  posix::UniqueFd fd_;
  std::unique_ptr<security::TlsSocket> tls_;  // null: none
  std::unique_ptr<TcpSender> sender_;
  std::unique_ptr<TcpReceiver> receiver_;

  TcpLinkOptions options_;
  TcpConnector connector_;
  pid_t pid_;        // a forked child only lets go
  std::string end_;  // how reading or writing ended, where it was an error
  Status status_;
};

}  // namespace ciuic::transport::tcp
