// SPDX-License-Identifier: Apache-2.0
// json_text.cc: escaping of JSON strings.

#include "base/json_text.h"

#include <fmt/core.h>

namespace ciuic {

std::string json_quoted(std::string_view text) {
  std::string quoted = "\"";
  for (const char letter : text) {
    const auto code = static_cast<unsigned char>(letter);
    switch (letter) {
      case '"': quoted += "\\\""; break;
      case '\\': quoted += "\\\\"; break;
      case '\n': quoted += "\\n"; break;
      case '\t': quoted += "\\t"; break;
      default:
        if (code < 0x20) {
          quoted += fmt::format("\\u{:04x}", code);
        } else {
          quoted += letter;
        }
    }
  }
  return quoted + '"';
}

}  // namespace ciuic
