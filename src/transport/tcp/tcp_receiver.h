// SPDX-License-Identifier: Apache-2.0
// tcp_receiver.h: takes the bytes of a socket apart into messages.
//
// Bytes are read into a few blocks. A small payload stays there until it is released, so a block is
// used again when nobody holds a payload in it. A payload of kDirectBytes or more is read to where
// it was placed, save what came together with its header.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "ciuic/status.h"
#include "security/tls_socket.h"
#include "transport/link.h"
#include "wire/header.h"

namespace ciuic::transport::tcp {

// Payloads from here on are announced, and placed.
inline constexpr size_t kDirectBytes = 4 * 1024;

class TcpReceiver {
 public:
  // With `tls`, which outlives it, all bytes come through that.
  explicit TcpReceiver(security::TlsSocket* tls = nullptr)
      : tls_(tls), memory_(new std::byte[kBlocks * kBlockBytes]) {}

  // Reads what is there and there is room for; *readable becomes false where nothing more is there.
  // Returns whether anything came. kClosed: end of stream; kPeerLost: the connection is gone, or,
  // with TLS, was cut off.
  Result<bool> fill(int fd, bool* readable);

  // As Link::receive(). kMismatch: bytes that are no message.
  Result<bool> next(Arrival* arrival);

  // Whether next() would return something.
  bool has_message() const;

  void place(std::byte* destination);
  void release(uint64_t token);

  // Whether a message was cut off in its middle.
  bool in_message() const { return stage_ != Stage::kHeader || begin_ != end_; }

  static constexpr size_t buffer_bytes() { return kBlocks * kBlockBytes; }

 private:
  static constexpr size_t kBlocks = 4;
  static constexpr size_t kBlockBytes = 16 * 1024;
  static constexpr uint64_t kNoToken = ~uint64_t{0};

  enum class Stage { kHeader, kAnnounced, kPlaced };

  std::byte* block() const { return memory_.get() + block_ * kBlockBytes; }
  bool make_room();
  size_t missing_bytes() const;

  security::TlsSocket* tls_;
  std::unique_ptr<std::byte[]> memory_;
  size_t block_ = 0;  // the one that is filled
  size_t begin_ = 0;  // in it: what has not been taken apart yet
  size_t end_ = 0;
  std::array<uint32_t, kBlocks> held_{};  // payloads given out and not released

  Stage stage_ = Stage::kHeader;
  bool after_large_ = false;  // the last message was a large one
  wire::Header header_;       // of a large message
  std::byte* destination_ = nullptr;
  size_t placed_ = 0;  // bytes of it that have come
};

}  // namespace ciuic::transport::tcp
