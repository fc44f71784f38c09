// SPDX-License-Identifier: Apache-2.0
// printable.cc: UTF-8 by the table of RFC 3629, section 4.

#include "base/printable.h"

#include <algorithm>
#include <cstdint>

namespace ciuic {

namespace {

// The first byte says how many follow, and what the second may be: so no character has two forms,
// and no half of a pair of UTF-16 is one.
struct Form {
  uint8_t first_low, first_high;
  size_t bytes;
  uint8_t second_low, second_high;
};

constexpr Form kForms[] = {
    {0x00, 0x7f, 1, 0, 0},       {0xc2, 0xdf, 2, 0x80, 0xbf}, {0xe0, 0xe0, 3, 0xa0, 0xbf},
    {0xe1, 0xec, 3, 0x80, 0xbf}, {0xed, 0xed, 3, 0x80, 0x9f}, {0xee, 0xef, 3, 0x80, 0xbf},
    {0xf0, 0xf0, 4, 0x90, 0xbf}, {0xf1, 0xf3, 4, 0x80, 0xbf}, {0xf4, 0xf4, 4, 0x80, 0x8f},
};

uint8_t byte_at(std::string_view text, size_t at) { return static_cast<uint8_t>(text[at]); }

}  // namespace

bool is_control(std::string_view character) {
  const uint8_t first = byte_at(character, 0);
  if (character.size() == 1) return first < 0x20 || first == 0x7f;
  if (character.size() == 2) return first == 0xc2 && byte_at(character, 1) < 0xa0;
  if (character.size() != 3 || first != 0xe2) return false;
  const int rest = byte_at(character, 1) << 8 | byte_at(character, 2);
  return (rest >= 0x80a8 && rest <= 0x80ae) || (rest >= 0x81a6 && rest <= 0x81a9);
}

size_t utf8_length(std::string_view text) {
  if (text.empty()) return 0;
  const uint8_t first = byte_at(text, 0);
  for (const Form& form : kForms) {
    if (first < form.first_low || first > form.first_high) continue;
    if (form.bytes == 1) return 1;
    if (text.size() < form.bytes) return 0;
    if (byte_at(text, 1) < form.second_low || byte_at(text, 1) > form.second_high) return 0;
    for (size_t at = 2; at < form.bytes; ++at) {
      if (byte_at(text, at) < 0x80 || byte_at(text, at) > 0xbf) return 0;
    }
    return form.bytes;
  }
  return 0;
}

std::string printable(std::string_view text, size_t limit) {
  text = text.substr(0, limit);
  std::string line;
  line.reserve(text.size());
  while (!text.empty()) {
    const size_t bytes = utf8_length(text);
    const std::string_view character = text.substr(0, std::max<size_t>(bytes, 1));
    if (bytes == 0) {
      line += '?';
    } else if (!is_control(character)) {
      line += character;
    } else {
      line += character == "\n" || character == "\t" || character == "\r" ? ' ' : '?';
    }
    text.remove_prefix(character.size());
  }
  return line;
}

}  // namespace ciuic
