// SPDX-License-Identifier: Apache-2.0
// input.h: takes a fuzzer's bytes apart, and says what must hold.
//
// Taken from the front, so that a seed is simply written; past the end there are zeros and nothing.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "base/printable.h"
#include "ciuic/status.h"

namespace ciuic::fuzz {

// A broken promise is a finding, as a crash is.
inline void require(bool holds, const char* promise) {
  if (holds) return;
  std::fprintf(stderr, "does not hold: %s\n", promise);
  std::abort();
}

// What is said of bad input does not pass its control characters on, nor bytes that are no text.
inline void require_text(const Status& status) {
  require(printable(status.message(), status.message().size()) == status.message(),
          "a message is a line of text");
}

class Input {
 public:
  Input(const uint8_t* data, size_t size) : left_(reinterpret_cast<const char*>(data), size) {}

  bool empty() const { return left_.empty(); }
  size_t left() const { return left_.size(); }

  uint8_t u8() { return static_cast<uint8_t>(number(1)); }
  uint16_t u16() { return static_cast<uint16_t>(number(2)); }
  uint32_t u32() { return static_cast<uint32_t>(number(4)); }
  uint64_t u64() { return number(8); }

  // From a byte; `count` is 1 to 256.
  int below(int count) { return u8() % count; }
  bool flag() { return (u8() & 1) != 0; }

  std::string_view bytes(size_t count) {
    const std::string_view taken = left_.substr(0, std::min(count, left_.size()));
    left_.remove_prefix(taken.size());
    return taken;
  }
  std::string_view text() { return bytes(u8()); }  // its length first
  std::string_view rest() { return bytes(left_.size()); }

 private:
  uint64_t number(size_t size) {
    const std::string_view taken = bytes(size);
    uint64_t value = 0;
    for (size_t i = 0; i < taken.size(); ++i) {
      value |= uint64_t{static_cast<unsigned char>(taken[i])} << (8 * i);
    }
    return value;
  }

  std::string_view left_;
};

}  // namespace ciuic::fuzz
