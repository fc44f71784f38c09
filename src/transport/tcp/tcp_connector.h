// SPDX-License-Identifier: Apache-2.0
// tcp_connector.h: makes the connection of a TcpLink, without blocking: tries the peer's addresses
// in turn, proves the secret, and waits for the peer's word that it keeps this connection.
//
// That word is a byte. The peer gives it unless it has a connection already, or is itself about to
// connect and its rank is lower; then it closes, and the connector tries again a little later.
//
// Time alone does not say that a peer is lost if its system took the connection: a process answers
// when it comes to its own operation. Who waits for it has a deadline, and the control plane knows
// who is silent. So the connector goes through the addresses again, for longer each time.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "ciuic/status.h"
#include "drivers/posix/address.h"
#include "drivers/posix/poller.h"
#include "drivers/posix/unique_fd.h"
#include "security/handshake.h"
#include "security/tls_socket.h"
#include "transport/handshake_io.h"

namespace ciuic::transport::tcp {

inline constexpr char kKeptByte = '\x06';

// One that has been proven; what goes over it goes through `tls`, where there is one.
struct TcpConnection {
  posix::UniqueFd fd;
  std::unique_ptr<security::TlsSocket> tls;
};

struct TcpConnectorOptions {
  std::vector<posix::Address> addresses;
  std::string secret;
  security::Identity identity;  // complete
  posix::Poller* poller = nullptr;
};

class TcpConnector {
 public:
  explicit TcpConnector(TcpConnectorOptions options) : options_(std::move(options)) {}
  ~TcpConnector() { drop(); }
  TcpConnector(const TcpConnector&) = delete;
  TcpConnector& operator=(const TcpConnector&) = delete;

  // Starts with the first address; again after drop(). By the deadline one address has to have
  // taken the connection.
  void begin(TimeNs deadline, TimeNs now);

  // Whether the peer has, or may have, taken this connection as far as its handshake.
  bool reached_peer() const { return stage_ == Stage::kProving || stage_ == Stage::kWaiting; }

  // The connection when it is done, an invalid one while it is not. Final errors: kPeerLost,
  // which names each address and what was wrong with it; kPermission, kMismatch. It is never lost
  // where an address took the connection in this round and merely has not answered yet.
  Result<TcpConnection> progress(TimeNs now);

  // Gives the attempt up, without an error. In a forked child it must not be called, nor the
  // destructor: forget() first.
  void drop();
  void forget();

 private:
  enum class Stage { kIdle, kConnecting, kProving, kWaiting };

  void start_attempt(TimeNs now);
  void end_attempt();
  void set_timer(TimeNs at);
  void attempt_failed(const std::string& why);
  Result<bool> advance();
  Result<bool> prove(const posix::Address& address);
  Result<size_t> receive_kept(char* kept);
  Status verdict() const;
  void begin_longer_round(TimeNs now);
  bool is_too_late(TimeNs now);

  TcpConnectorOptions options_;
  Stage stage_ = Stage::kIdle;
  posix::UniqueFd fd_;
  posix::UniqueFd timer_;           // wakes a sleeper when something is due here
  std::atomic<uint32_t> ready_{0};  // of both
  std::optional<HandshakeIo> handshake_;
  std::unique_ptr<security::TlsSocket> tls_;
  size_t next_address_ = 0;
  TimeNs deadline_ = kNever;  // of this round
  TimeNs round_ns_ = 0;
  TimeNs attempt_deadline_ = kNever;
  TimeNs retry_at_ = 0;
  bool is_busy_ = false;  // in this round somebody took a connection, and said nothing in time
  bool had_grace_ = false;
  bool try_again_ = false;  // the peer is there: it only did not keep the connection
  std::string failures_;
};

}  // namespace ciuic::transport::tcp
