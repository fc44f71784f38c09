// SPDX-License-Identifier: Apache-2.0
// handshake_io.h: runs a Handshake over a non-blocking socket, a piece at a time, and that of TLS
// after it where the two ends have agreed on it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "ciuic/status.h"
#include "security/handshake.h"
#include "security/tls_socket.h"

namespace ciuic::transport {

// What a connection of this folder is for (security::Identity::purpose).
inline constexpr uint32_t kTcpLinkPurpose = 16;
inline constexpr uint32_t kLocalPairPurpose = 17;

class HandshakeIo {
 public:
  explicit HandshakeIo(security::Handshake handshake) : handshake_(std::move(handshake)) {}

  // True: over, both ends have proven themselves and all was sent. False: goes on when the socket
  // is readable or writable again. An error is final; kPeerLost: the connection ended first.
  Result<bool> progress(int fd);

  // Whether it waits for the socket to take bytes.
  bool is_sending() {
    return !handshake_.to_send().empty() || (tls_ != nullptr && tls_->is_sending());
  }

  // Once it is over: through which all further bytes go. Null: no TLS.
  std::unique_ptr<security::TlsSocket> take_tls() { return std::move(tls_); }

  const security::Identity& peer() const { return handshake_.peer(); }

 private:
  Result<bool> prove(int fd);
  Status start_tls();

  security::Handshake handshake_;
  std::string received_;
  std::unique_ptr<security::TlsSocket> tls_;
};

}  // namespace ciuic::transport
