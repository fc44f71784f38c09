// SPDX-License-Identifier: Apache-2.0
// json_text.h: text as a JSON string, for the few places that write JSON by appending.
#pragma once

#include <string>
#include <string_view>

namespace ciuic {

// `text` in quotation marks, with what JSON asks to be escaped, and all other control characters
// (printable.h). Always UTF-8: bytes that are none become U+FFFD.
std::string json_quoted(std::string_view text);

}  // namespace ciuic
