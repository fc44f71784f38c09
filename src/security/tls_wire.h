// SPDX-License-Identifier: Apache-2.0
// tls_wire.h: the encrypted bytes of one connection on their way between OpenSSL and a socket.
//
// Two buffers of fixed size. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace ciuic::security {

// The most that one call of OpenSSL adds to what is to be sent: a record of 16 KiB with its frame,
// or a flight of the handshake.
inline constexpr size_t kTlsMostAtOnce = 17 * 1024;

class TlsWire {
 public:
  TlsWire(size_t in_bytes, size_t out_bytes);

  // ---- the socket's side ----

  // Where bytes from the peer go, and that so many went there.
  std::span<std::byte> room();
  void came(size_t bytes) { in_end_ += bytes; }

  // No more bytes will come from the peer.
  void end_input() { input_ended_ = true; }

  std::span<const std::byte> to_send() const {
    return {out_.get() + out_begin_, out_end_ - out_begin_};
  }
  void sent(size_t bytes);

  // All bytes that were ever to be sent.
  uint64_t produced() const { return produced_; }

  // ---- OpenSSL's side ----

  // How many bytes; 0: none now, or, where input_ended(), none any more.
  size_t read(std::byte* out, size_t bytes);
  bool input_ended() const { return input_ended_ && in_begin_ == in_end_; }

  // Whether it asked for more after the end.
  bool end_told() const { return end_told_; }

  // How many bytes fitted.
  size_t write(const std::byte* data, size_t bytes);

  // Whether one more call that writes will find room, once what lies there may have moved.
  bool can_write() const { return out_bytes_ - (out_end_ - out_begin_) >= kTlsMostAtOnce; }

  size_t buffer_bytes() const { return in_bytes_ + out_bytes_; }

 private:
  size_t in_bytes_;
  size_t out_bytes_;
  std::unique_ptr<std::byte[]> in_;
  std::unique_ptr<std::byte[]> out_;
  size_t in_begin_ = 0;
  size_t in_end_ = 0;
  size_t out_begin_ = 0;
  size_t out_end_ = 0;
  uint64_t produced_ = 0;
  bool input_ended_ = false;
  bool end_told_ = false;
};

}  // namespace ciuic::security
