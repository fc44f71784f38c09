// SPDX-License-Identifier: Apache-2.0
// json_text.cc: escaping of JSON strings.

#include "base/json_text.h"

#include <fmt/core.h>

#include "base/printable.h"

namespace ciuic {

// A character of UTF-8 as it stands in a string of JSON.
static std::string escaped(std::string_view character) {
  const char letter = character.front();
  switch (letter) {
    case '"': return "\\\"";
    case '\\': return "\\\\";
    case '\n': return "\\n";
    case '\t': return "\\t";
    default: break;
  }
  if (!is_control(character)) return std::string(character);
  // None has more than three bytes: 0xxxxxxx, 110xxxxx and 1110xxxx begin one.
  const size_t bytes = character.size();
  unsigned code = static_cast<unsigned char>(letter) & (bytes == 1 ? 0x7f : 0x3f >> (bytes - 1));
  for (const char more : character.substr(1)) {
    code = code << 6 | (static_cast<unsigned char>(more) & 0x3f);
  }
  return fmt::format("\\u{:04x}", code);
}

std::string json_quoted(std::string_view text) {
  std::string quoted = "\"";
  while (!text.empty()) {
    const size_t bytes = utf8_length(text);
    quoted += bytes > 0 ? escaped(text.substr(0, bytes)) : "\xef\xbf\xbd";  // U+FFFD, a replacement
    text.remove_prefix(bytes > 0 ? bytes : 1);
  }
  return quoted + '"';
}

}  // namespace ciuic
