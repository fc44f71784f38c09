// SPDX-License-Identifier: Apache-2.0
// bytes.cc: writing and bounded reading of little-endian numbers and texts.

#include "bootstrap/bytes.h"

namespace ciuic::bootstrap {

ByteWriter& ByteWriter::u8(uint8_t value) {
  bytes_.push_back(static_cast<char>(value));
  return *this;
}

ByteWriter& ByteWriter::u32(uint32_t value) {
  for (int shift = 0; shift < 32; shift += 8) bytes_.push_back(static_cast<char>(value >> shift));
  return *this;
}

ByteWriter& ByteWriter::u64(uint64_t value) {
  u32(static_cast<uint32_t>(value));
  return u32(static_cast<uint32_t>(value >> 32));
}

ByteWriter& ByteWriter::text(std::string_view value) {
  u32(static_cast<uint32_t>(value.size()));
  return raw(value);
}

ByteWriter& ByteWriter::raw(std::string_view value) {
  bytes_ += value;
  return *this;
}

std::string_view ByteReader::take(size_t bytes) {
  if (failed_ || bytes > left_.size()) {
    failed_ = true;
    left_ = {};
    return {};
  }
  const std::string_view taken = left_.substr(0, bytes);
  left_.remove_prefix(bytes);
  return taken;
}

uint8_t ByteReader::u8() {
  const std::string_view bytes = take(1);
  return bytes.empty() ? uint8_t{0} : static_cast<uint8_t>(bytes[0]);
}

uint32_t ByteReader::u32() {
  const std::string_view bytes = take(4);
  uint32_t value = 0;
  for (size_t i = bytes.size(); i > 0; --i) {
    value = value << 8 | static_cast<unsigned char>(bytes[i - 1]);
  }
  return value;
}

uint64_t ByteReader::u64() {
  const uint64_t low = u32();
  return low | static_cast<uint64_t>(u32()) << 32;
}

std::string ByteReader::text(size_t limit_bytes) {
  const uint32_t bytes = u32();
  if (bytes > limit_bytes) failed_ = true;
  return std::string(take(bytes));
}

std::string ByteReader::rest() { return std::string(take(left_.size())); }

uint32_t ByteReader::count(size_t item_bytes, uint32_t limit) {
  const uint32_t items = u32();
  if (failed_ || items > limit || items > left_.size() / item_bytes) {
    failed_ = true;
    return 0;
  }
  return items;
}

}  // namespace ciuic::bootstrap
