// SPDX-License-Identifier: Apache-2.0
// tcp_sender.cc: headers are kept in a ring, payloads where they lie.

#include "transport/tcp/tcp_sender.h"

#include <sys/uio.h>

#include <algorithm>

#include "base/assert.h"
#include "drivers/posix/socket_parts.h"

namespace ciuic::transport::tcp {

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
    data = data || queue_[sent_ % kQueue].type == wire::MessageType::kData;
  }
  begun_ = 0;
  return data;
}

}  // namespace ciuic::transport::tcp
