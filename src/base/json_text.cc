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
  const auto code = static_cast<unsigned char>(letter);
  return code < 0x20 ? fmt::format("\\u{:04x}", code) : std::string(character);
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
