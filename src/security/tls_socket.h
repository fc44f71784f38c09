// SPDX-License-Identifier: Apache-2.0
// tls_socket.h: a TlsStream on a non-blocking socket, which its owner keeps.
//
// An edge-triggered owner keeps two flags, as it does for a bare socket: `readable` is cleared only
// when neither the socket nor anything in here has more, `writable` when the socket is full.
#pragma once

#include <sys/uio.h>

#include <memory>
#include <span>

#include "ciuic/status.h"
#include "security/tls_stream.h"

namespace ciuic::security {

class TlsSocket {
 public:
  static Result<std::unique_ptr<TlsSocket>> create(const TlsOptions& options);

  // Goes on with the handshake. True: over, and all of it sent. Errors as TlsStream's, and
  // kPeerLost where the connection ended.
  Result<bool> shake_hands(int fd);

  // Whether the handshake waits for the socket to take bytes.
  bool is_sending() const { return !stream_->to_send().empty(); }

  // Fills the parts in turn with what has come. 0: nothing now. kClosed: the peer has closed;
  // kPeerLost: the connection is gone, or was cut off. Told only when all before it was read.
  Result<size_t> receive(int fd, std::span<const iovec> parts, bool* readable);

  // Encrypts at most kTlsRecordBytes. False: flush() first.
  Result<bool> write(std::span<const std::byte> data) { return stream_->write(data); }
  bool can_write() const { return stream_->can_write(); }

  // Sends what is encrypted. How many bytes went.
  Result<size_t> flush(int fd, bool* writable);

  // Bytes encrypted, and of them sent, since the beginning.
  uint64_t produced() const { return stream_->produced(); }
  uint64_t flushed() const { return stream_->produced() - stream_->to_send().size(); }

  // Adds close_notify to what is to be sent.
  void close() { stream_->close(); }

  size_t buffer_bytes() const { return stream_->buffer_bytes(); }

 private:
  explicit TlsSocket(std::unique_ptr<TlsStream> stream) : stream_(std::move(stream)) {}

  std::unique_ptr<TlsStream> stream_;
  Status ended_;  // how the socket did
};

}  // namespace ciuic::security
