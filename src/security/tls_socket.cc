// SPDX-License-Identifier: Apache-2.0
// tls_socket.cc: what the socket has goes into the stream, what the stream has into the socket.

#include "security/tls_socket.h"

#include <utility>

#include "drivers/posix/socket.h"
#include "drivers/posix/socket_parts.h"

namespace ciuic::security {

Result<std::unique_ptr<TlsSocket>> TlsSocket::create(const TlsOptions& options) {
  Result<std::unique_ptr<TlsStream>> stream = TlsStream::create(options);
  if (!stream.ok()) return stream.status();
  return std::unique_ptr<TlsSocket>(new TlsSocket(std::move(*stream)));
}

// Reads once. False: nothing was there. An end is not an error here: the stream decides.
static Result<bool> read_socket(int fd, TlsStream* stream, Status* ended) {
  if (!ended->ok()) return *ended;
  const std::span<std::byte> room = stream->room();
  iovec part = {room.data(), room.size()};
  Result<size_t> came = posix::receive_parts(fd, {&part, 1});
  if (came.ok()) {
    stream->came(*came);
    return *came > 0;
  }
  *ended = came.status();
  if (ended->code() != StatusCode::kClosed) return *ended;
  stream->end_input();
  return true;
}

Result<size_t> TlsSocket::flush(int fd, bool* writable) {
  size_t sent = 0;
  while (!stream_->to_send().empty() && *writable) {
    const std::span<const std::byte> bytes = stream_->to_send();
    Result<size_t> went = posix::send_some(fd, bytes.data(), bytes.size());
    if (!went.ok()) return went.status();
    if (*went < bytes.size()) *writable = false;
    stream_->sent(*went);
    sent += *went;
  }
  return sent;
}

Result<bool> TlsSocket::shake_hands(int fd) {
  while (true) {
    Result<bool> done = stream_->shake_hands();
    bool writable = true;
    Result<size_t> sent = flush(fd, &writable);  // after an error, too: it tells the peer why
    if (!done.ok()) return done;
    if (!sent.ok()) return sent.status();
    if (!writable) return false;
    if (*done) return true;
    if (stream_->wants_to_send()) continue;
    Result<bool> came = read_socket(fd, stream_.get(), &ended_);
    if (!came.ok()) return Status(StatusCode::kPeerLost, came.status().message());
    if (!*came) return false;
  }
}

Result<size_t> TlsSocket::receive(int fd, std::span<const iovec> parts, bool* readable) {
  size_t total = 0;
  for (const iovec& part : parts) {
    size_t filled = 0;
    while (filled < part.iov_len) {
      const std::span<std::byte> out(static_cast<std::byte*>(part.iov_base) + filled,
                                     part.iov_len - filled);
      Result<size_t> count = stream_->read(out);
      if (!count.ok()) return total > 0 ? Result<size_t>(total) : count;
      filled += *count;
      total += *count;
      if (*count > 0) continue;
      if (stream_->wants_to_send()) return total;
      Result<bool> came = read_socket(fd, stream_.get(), &ended_);
      if (!came.ok()) return total > 0 ? Result<size_t>(total) : came.status();
      if (*came) continue;
      *readable = false;
      return total;
    }
  }
  return total;
}

}  // namespace ciuic::security
