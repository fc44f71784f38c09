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

// One line: white space becomes a space, other control characters and what is no UTF-8 become '?'.
// At most `limit` bytes of the text are looked at.
std::string printable(std::string_view text, size_t limit = 16 * 1024);

}  // namespace ciuic
