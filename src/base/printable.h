// SPDX-License-Identifier: Apache-2.0
// printable.h: text from outside (a peer, a file, a variable) before it goes into a message, a log
// or JSON: UTF-8, and nothing that a terminal or a reader of lines would take for a command.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace ciuic {

// Bytes of the character of UTF-8 that `text` begins with; 0: it begins with none (RFC 3629).
size_t utf8_length(std::string_view text);

// Whether a terminal or a reader of lines may take a character of UTF-8 for a command: U+0000 to
// U+001F, U+007F to U+009F; ends of lines and paragraphs, and those that turn the direction of
// writing round, so that a message reads otherwise than it is: U+2028 to U+202E, U+2066 to U+2069.
bool is_control(std::string_view character);

// One line: white space becomes a space, other control characters and what is no UTF-8 become '?'.
// At most `limit` bytes of the text are looked at.
std::string printable(std::string_view text, size_t limit = 16 * 1024);

}  // namespace ciuic
