// SPDX-License-Identifier: Apache-2.0
// tls_wire.cc: what is left in a buffer moves to its beginning when the end has no room.

#include "security/tls_wire.h"

#include <algorithm>
#include <cstring>

#include "base/assert.h"

namespace ciuic::security {

TlsWire::TlsWire(size_t in_bytes, size_t out_bytes)
    : in_bytes_(in_bytes),
      out_bytes_(std::max(out_bytes, kTlsMostAtOnce)),
      in_(new std::byte[in_bytes_]),
      out_(new std::byte[out_bytes_]) {}

std::span<std::byte> TlsWire::room() {
  if (in_begin_ == in_end_) {
    in_begin_ = in_end_ = 0;
  } else if (in_end_ == in_bytes_) {
    std::memmove(in_.get(), in_.get() + in_begin_, in_end_ - in_begin_);
    in_end_ -= in_begin_;
    in_begin_ = 0;
  }
  return {in_.get() + in_end_, in_bytes_ - in_end_};
}

void TlsWire::sent(size_t bytes) {
  CIUIC_ASSERT(bytes <= out_end_ - out_begin_);
  out_begin_ += bytes;
  if (out_begin_ == out_end_) out_begin_ = out_end_ = 0;
}

size_t TlsWire::read(std::byte* out, size_t bytes) {
  const size_t count = std::min(bytes, in_end_ - in_begin_);
  std::memcpy(out, in_.get() + in_begin_, count);
  in_begin_ += count;
  if (count == 0 && input_ended()) end_told_ = true;
  return count;
}

size_t TlsWire::write(const std::byte* data, size_t bytes) {
  if (out_end_ + bytes > out_bytes_ && out_begin_ > 0) {
    std::memmove(out_.get(), out_.get() + out_begin_, out_end_ - out_begin_);
    out_end_ -= out_begin_;
    out_begin_ = 0;
  }
  const size_t count = std::min(bytes, out_bytes_ - out_end_);
  std::memcpy(out_.get() + out_end_, data, count);
  out_end_ += count;
  produced_ += count;
  return count;
}

}  // namespace ciuic::security
