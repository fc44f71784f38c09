// SPDX-License-Identifier: Apache-2.0
// tcp_sender.h: the messages that wait for a socket to take them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <span>
#include <string>

#include "ciuic/status.h"
#include "security/tls_socket.h"
#include "wire/header.h"

namespace ciuic::transport::tcp {

class TcpSender {
 public:
  // With `tls`, which outlives it, all bytes go through that.
  explicit TcpSender(security::TlsSocket* tls = nullptr);

  bool full() const { return pushed_ - sent_ == kQueue; }
  bool empty() const { return pushed_ == sent_ && (tls_ == nullptr || !tls_->is_sending()); }

  // Only if not full. The payload stays where it is until sent() counts the message, save that of
  // kAbort, which is copied: who sends that is about to go.
  void push(const wire::Header& header, const std::byte* payload);

  // Counts a message that need not be sent.
  void skip() { abandon(), ++pushed_, ++sent_, ++encrypted_; }

  // Sends as many of them as the socket takes, several in one system call. *writable becomes false
  // where it takes no more. Returns whether anything went.
  Result<bool> flush(int fd, bool* writable);

  // Forgets what waits. Returns whether data was among it.
  bool abandon();

  // How many messages the system has taken. From the first data on that was abandoned it counts no
  // further: nobody shall believe that it left.
  uint64_t sent() const { return lost_data_ ? lost_at_ : sent_; }

 private:
  static constexpr size_t kQueue = 64;
  static constexpr size_t kMessagesAtOnce = 32;

  struct Message {
    std::array<std::byte, wire::kHeaderBytes> header;
    const std::byte* payload;
    size_t payload_bytes;
    wire::MessageType type;
    uint64_t encrypted_end;  // of all the bytes that TLS ever makes, where it ends
    size_t bytes() const { return wire::kHeaderBytes + payload_bytes; }
  };

  void advance(size_t bytes);
  Result<bool> flush_encrypted(int fd, bool* writable);
  Status encrypt();
  std::span<const std::byte> next_record();

  std::array<Message, kQueue> queue_;
  uint64_t pushed_ = 0;
  uint64_t sent_ = 0;
  bool lost_data_ = false;
  uint64_t lost_at_ = 0;
  std::list<std::string> texts_;  // payloads of kAbort
  size_t begun_ = 0;              // bytes of the first that have gone; with TLS, are encrypted

  security::TlsSocket* tls_;
  uint64_t encrypted_ = 0;               // so many messages are, whole
  std::unique_ptr<std::byte[]> record_;  // where small pieces become one record
};

}  // namespace ciuic::transport::tcp
