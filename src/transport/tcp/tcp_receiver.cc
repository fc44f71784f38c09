// SPDX-License-Identifier: Apache-2.0
// tcp_receiver.cc: reading ahead, and taking apart.

#include "transport/tcp/tcp_receiver.h"

#include <sys/uio.h>

#include <algorithm>
#include <cstring>
#include <span>

#include "base/assert.h"
#include "drivers/posix/socket_parts.h"

namespace ciuic::transport::tcp {

static_assert(wire::kHeaderBytes + kDirectBytes <= 16 * 1024);

using HeaderBytes = std::span<const std::byte, wire::kHeaderBytes>;

// Bytes that the message at begin_ still lacks; 0: it is complete, or is no message.
size_t TcpReceiver::missing_bytes() const {
  const size_t have = end_ - begin_;
  if (have < wire::kHeaderBytes) return wire::kHeaderBytes - have;
  const Result<wire::Header> header =
      wire::decode(HeaderBytes(block() + begin_, wire::kHeaderBytes));
  if (!header.ok() || header->payload_bytes >= kDirectBytes) return 0;
  const size_t bytes = wire::kHeaderBytes + header->payload_bytes;
  return bytes > have ? bytes - have : 0;
}

bool TcpReceiver::has_message() const {
  if (stage_ == Stage::kAnnounced) return false;
  if (stage_ == Stage::kPlaced) return placed_ == header_.payload_bytes;
  return missing_bytes() == 0;
}

// Finds room for the message at begin_. False: every block has a payload that somebody holds.
bool TcpReceiver::make_room() {
  const size_t have = end_ - begin_;
  if (have == 0 && held_[block_] == 0) begin_ = end_ = 0;
  if (end_ < kBlockBytes && end_ + missing_bytes() <= kBlockBytes) return true;
  size_t to = block_;
  for (size_t tried = 0; tried < kBlocks && held_[to] != 0; ++tried) to = (to + 1) % kBlocks;
  if (held_[to] != 0) return false;
  std::memmove(memory_.get() + to * kBlockBytes, block() + begin_, have);
  block_ = to;
  begin_ = 0;
  end_ = have;
  return end_ < kBlockBytes;
}

Result<bool> TcpReceiver::fill(int fd, bool* readable) {
  std::array<iovec, 2> parts;
  size_t count = 0;
  size_t wanted = 0;
  const auto add = [&](std::byte* at, size_t bytes) {
    if (bytes > 0) parts[count++] = {at, bytes};
    wanted += bytes;
  };
  if (stage_ == Stage::kAnnounced) return false;
  const bool direct = stage_ == Stage::kPlaced && placed_ < header_.payload_bytes;
  if (direct) add(destination_ + placed_, header_.payload_bytes - placed_);
  if (make_room()) {
    // Behind a large message comes another one, most likely: what is read ahead of it is copied.
    const size_t limit =
        direct || after_large_ ? wire::kHeaderBytes + kDirectBytes : size_t{kBlockBytes};
    add(block() + end_, std::min(limit, kBlockBytes - end_));
  }
  if (count == 0) return false;
  const std::span<iovec> into(parts.data(), count);
  Result<size_t> came =
      tls_ != nullptr ? tls_->receive(fd, into, readable) : posix::receive_parts(fd, into);
  if (!came.ok()) return came.status();
  if (tls_ == nullptr && *came < wanted) *readable = false;
  size_t ahead = *came;
  if (direct) {
    const size_t part = std::min<size_t>(ahead, header_.payload_bytes - placed_);
    placed_ += part;
    ahead -= part;
  }
  end_ += ahead;
  return *came > 0;
}

Result<bool> TcpReceiver::next(Arrival* arrival) {
  if (stage_ == Stage::kAnnounced) return false;
  if (stage_ == Stage::kPlaced) {
    if (placed_ < header_.payload_bytes) return false;
    stage_ = Stage::kHeader;
    after_large_ = true;
    *arrival = {header_, destination_, kNoToken};
    return true;
  }
  if (end_ - begin_ < wire::kHeaderBytes) return false;
  Result<wire::Header> header = wire::decode(HeaderBytes(block() + begin_, wire::kHeaderBytes));
  if (!header.ok()) return header.status();
  const size_t payload_bytes = header->payload_bytes;
  if (payload_bytes >= kDirectBytes) {
    begin_ += wire::kHeaderBytes;
    stage_ = Stage::kAnnounced;
    header_ = *header;
    *arrival = {header_, nullptr, kNoToken};
    return true;
  }
  if (end_ - begin_ < wire::kHeaderBytes + payload_bytes) return false;
  after_large_ = false;
  *arrival = {*header, nullptr, kNoToken};
  if (payload_bytes > 0) {
    arrival->data = block() + begin_ + wire::kHeaderBytes;
    arrival->token = block_;
    ++held_[block_];
  }
  begin_ += wire::kHeaderBytes + payload_bytes;
  return true;
}

void TcpReceiver::place(std::byte* destination) {
  CIUIC_ASSERT(stage_ == Stage::kAnnounced);
  stage_ = Stage::kPlaced;
  destination_ = destination;
  placed_ = std::min<size_t>(end_ - begin_, header_.payload_bytes);
  std::memcpy(destination_, block() + begin_, placed_);
  begin_ += placed_;
}

void TcpReceiver::release(uint64_t token) {
  if (token == kNoToken) return;
  CIUIC_ASSERT(token < kBlocks && held_[token] > 0);
  --held_[token];
}

}  // namespace ciuic::transport::tcp
