// SPDX-License-Identifier: Apache-2.0
// handshake_io.cc: the pieces go out and come in as the socket takes and has them.

#include "transport/handshake_io.h"

#include <utility>

#include "drivers/posix/socket.h"

namespace ciuic::transport {

// What waits encrypted on a link. More costs cache, less costs system calls.
static constexpr size_t kTlsInBytes = 64 * 1024;
static constexpr size_t kTlsOutBytes = 128 * 1024;

Status HandshakeIo::start_tls() {
  Result<std::string> key = handshake_.tls_key();
  if (!key.ok()) return key.status();
  security::TlsOptions options;
  options.accepts = handshake_.accepts();
  options.key = std::move(*key);
  options.in_bytes = kTlsInBytes;
  options.out_bytes = kTlsOutBytes;
  Result<std::unique_ptr<security::TlsSocket>> tls = security::TlsSocket::create(options);
  if (!tls.ok()) return tls.status();
  tls_ = std::move(*tls);
  return {};
}

Result<bool> HandshakeIo::progress(int fd) {
  if (tls_ == nullptr) {
    Result<bool> proven = prove(fd);
    if (!proven.ok() || !*proven || !handshake_.uses_tls()) return proven;
    CIUIC_RETURN_IF_ERROR(start_tls());
  }
  return tls_->shake_hands(fd);
}

Result<bool> HandshakeIo::prove(int fd) {
  while (true) {
    std::string& out = handshake_.to_send();
    while (!out.empty()) {
      Result<size_t> count = posix::send_some(fd, out.data(), out.size());
      if (!count.ok()) return count.status();
      if (*count == 0) return false;
      out.erase(0, *count);
    }
    const size_t wanted = handshake_.wanted();
    if (wanted == 0) {
      if (handshake_.done()) return true;
      return Status(StatusCode::kPermission, "the handshake has failed");
    }
    const size_t had = received_.size();
    received_.resize(wanted);
    Result<size_t> count = posix::receive_some(fd, received_.data() + had, wanted - had);
    received_.resize(had + (count.ok() ? *count : 0));
    if (!count.ok()) return count.status();
    if (*count == 0) return false;
    if (received_.size() < wanted) continue;
    CIUIC_RETURN_IF_ERROR(handshake_.receive(received_));
    received_.clear();
  }
}

}  // namespace ciuic::transport
