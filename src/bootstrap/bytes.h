// SPDX-License-Identifier: Apache-2.0
// bytes.h: numbers and texts as bytes and back, little-endian, for what ranks tell each other at
// the join. A reader believes no length: past the end it gives zeros and empty texts, and says so.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace ciuic::bootstrap {

class ByteWriter {
 public:
  ByteWriter& u8(uint8_t value);
  ByteWriter& u32(uint32_t value);
  ByteWriter& u64(uint64_t value);
  ByteWriter& text(std::string_view value);  // its length, then its bytes
  ByteWriter& raw(std::string_view value);   // its bytes alone

  const std::string& bytes() const { return bytes_; }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) : left_(bytes) {}

  uint8_t u8();
  uint32_t u32();
  uint64_t u64();
  std::string text(size_t limit_bytes);  // longer ones fail
  std::string rest();

  // A number of items to follow, each at least `item_bytes` long: more than can be there fails.
  uint32_t count(size_t item_bytes, uint32_t limit);

  bool failed() const { return failed_; }
  bool complete() const { return !failed_ && left_.empty(); }

 private:
  std::string_view take(size_t bytes);

  std::string_view left_;
  bool failed_ = false;
};

}  // namespace ciuic::bootstrap
