// SPDX-License-Identifier: Apache-2.0
// tcp_sender.cc: headers are kept in a ring, payloads where they lie.
//
// With TLS, large payloads are encrypted from where they lie, a record at a time; headers and small
// ones are first gathered, so that a record is as full as it can be. A message counts as sent when
// the system has taken its last encrypted byte: what was only encrypted may still be lost here.

#include "transport/tcp/tcp_sender.h"

#include <sys/uio.h>

#include <algorithm>
#include <cstring>

#include "base/assert.h"
#include "drivers/posix/socket_parts.h"

namespace ciuic::transport::tcp {

TcpSender::TcpSender(security::TlsSocket* tls) : tls_(tls) {
  if (tls_ != nullptr) record_.reset(new std::byte[security::kTlsRecordBytes]);
}

void TcpSender::push(const wire::Header& header, const std::byte* payload) {
  CIUIC_ASSERT(!full());
  Message& message = queue_[pushed_++ % kQueue];
  wire::encode(header, message.header);
  message.payload = payload;
  if (header.type == wire::MessageType::kAbort) {
    const auto* text = reinterpret_cast<const char*>(payload);
    texts_.emplace_back(text, header.payload_bytes);
    message.payload = reinterpret_cast<const std::byte*>(texts_.back().data());
  }
  message.payload_bytes = header.payload_bytes;
  message.type = header.type;
}

Result<bool> TcpSender::flush(int fd, bool* writable) {
  if (tls_ != nullptr) return flush_encrypted(fd, writable);
  bool moved = false;
  while (!empty() && *writable) {
    std::array<iovec, 2 * kMessagesAtOnce> parts;
    size_t count = 0;
    size_t bytes = 0;
    size_t skip = begun_;
    const uint64_t end = std::min<uint64_t>(pushed_, sent_ + kMessagesAtOnce);
    for (uint64_t number = sent_; number < end; ++number) {
      Message& message = queue_[number % kQueue];
      bytes += message.bytes() - skip;
      if (skip < wire::kHeaderBytes) {
        parts[count++] = {message.header.data() + skip, wire::kHeaderBytes - skip};
        skip = wire::kHeaderBytes;
      }
      const size_t payload_skip = skip - wire::kHeaderBytes;
      if (payload_skip < message.payload_bytes) {
        parts[count++] = {const_cast<std::byte*>(message.payload) + payload_skip,
                          message.payload_bytes - payload_skip};
      }
      skip = 0;
    }
    Result<size_t> went = posix::send_parts(fd, {parts.data(), count});
    if (!went.ok()) return went.status();
    // Less than all: the socket is full, and epoll will tell when it is not.
    if (*went < bytes) *writable = false;
    moved = moved || *went > 0;
    advance(*went);
  }
  return moved;
}

void TcpSender::advance(size_t bytes) {
  begun_ += bytes;
  while (!empty() && begun_ >= queue_[sent_ % kQueue].bytes()) {
    begun_ -= queue_[sent_ % kQueue].bytes();
    ++sent_;
  }
}

bool TcpSender::abandon() {
  bool data = false;
  for (; sent_ != pushed_; ++sent_) {
    if (queue_[sent_ % kQueue].type != wire::MessageType::kData) continue;
    if (!lost_data_) lost_at_ = sent_;
    data = lost_data_ = true;
  }
  encrypted_ = sent_;
  begun_ = 0;
  return data;
}

Result<bool> TcpSender::flush_encrypted(int fd, bool* writable) {
  bool moved = false;
  while (!empty() && *writable) {
    const uint64_t before = tls_->produced();
    CIUIC_RETURN_IF_ERROR(encrypt());
    Result<size_t> went = tls_->flush(fd, writable);
    if (!went.ok()) return went.status();
    // TLS may first want the rest of what the peer is saying to it.
    if (*went == 0 && tls_->produced() == before) break;
    moved = moved || *went > 0;
    const uint64_t flushed = tls_->flushed();
    while (sent_ != encrypted_ && queue_[sent_ % kQueue].encrypted_end <= flushed) ++sent_;
  }
  return moved;
}

// As much as there is room for.
Status TcpSender::encrypt() {
  while (encrypted_ != pushed_ && tls_->can_write()) {
    const std::span<const std::byte> record = next_record();
    Result<bool> taken = tls_->write(record);
    if (!taken.ok()) return taken.status();
    if (!*taken) break;
    begun_ += record.size();
    while (encrypted_ != pushed_ && begun_ >= queue_[encrypted_ % kQueue].bytes()) {
      Message& whole = queue_[encrypted_++ % kQueue];
      begun_ -= whole.bytes();
      whole.encrypted_end = tls_->produced();
    }
  }
  return {};
}

std::span<const std::byte> TcpSender::next_record() {
  size_t filled = 0;
  size_t skip = begun_;
  for (uint64_t number = encrypted_; number != pushed_; ++number) {
    const Message& message = queue_[number % kQueue];
    const auto gather = [&](const std::byte* from, size_t bytes) {
      const size_t count = std::min(bytes, security::kTlsRecordBytes - filled);
      std::memcpy(record_.get() + filled, from, count);
      filled += count;
    };
    if (skip < wire::kHeaderBytes) {
      gather(message.header.data() + skip, wire::kHeaderBytes - skip);
      skip = wire::kHeaderBytes;
    }
    const std::byte* payload = message.payload + (skip - wire::kHeaderBytes);
    const size_t left = message.bytes() - skip;
    if (filled == 0 && left >= security::kTlsRecordBytes) {
      return {payload, security::kTlsRecordBytes};
    }
    if (left > 0) gather(payload, left);
    if (filled == security::kTlsRecordBytes) break;
    skip = 0;
  }
  return {record_.get(), filled};
}

}  // namespace ciuic::transport::tcp
