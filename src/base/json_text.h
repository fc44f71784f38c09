// SPDX-License-Identifier: Apache-2.0
// json_text.h: text as a JSON string, for the few places that write JSON by appending.
#pragma once

#include <string>
#include <string_view>

namespace ciuic {

// `text` in quotation marks, with what JSON asks to be escaped. Bytes from 0x80 up pass as they
// are: UTF-8 stays UTF-8.
std::string json_quoted(std::string_view text);

}  // namespace ciuic
