// SPDX-License-Identifier: Apache-2.0
// tcp_sender.h: the messages that wait for a socket to take them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <list>
#include <string>

#include "ciuic/status.h"
#include "wire/header.h"

namespace ciuic::transport::tcp {

class TcpSender {
 public:
  bool full() const { return pushed_ - sent_ == kQueue; }
  bool empty() const { return pushed_ == sent_; }

  // Only if not full. The payload stays where it is until sent() counts the message, save that of
  // kAbort, which is copied: who sends that is about to go.
  void push(const wire::Header& header, const std::byte* payload);

  // Counts a message that need not be sent.
  void skip() { abandon(), ++pushed_, ++sent_; }

  // Sends as many of them as the socket takes, several in one system call. *writable becomes false
  // where it takes no more. Returns whether anything went.
  Result<bool> flush(int fd, bool* writable);

  // Forgets what waits: it counts as sent. Returns whether data was among it.
  bool abandon();

  uint64_t sent() const { return sent_; }

 private:
  static constexpr size_t kQueue = 64;
  static constexpr size_t kMessagesAtOnce = 32;

  struct Message {
    std::array<std::byte, wire::kHeaderBytes> header;
    const std::byte* payload;
    size_t payload_bytes;
    wire::MessageType type;
    size_t bytes() const { return wire::kHeaderBytes + payload_bytes; }
  };

  void advance(size_t bytes);

  std::array<Message, kQueue> queue_;
  uint64_t pushed_ = 0;
  uint64_t sent_ = 0;
  std::list<std::string> texts_;  // payloads of kAbort
  size_t begun_ = 0;              // bytes of the first that have gone
};

}  // namespace ciuic::transport::tcp
