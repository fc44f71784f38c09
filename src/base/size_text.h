// SPDX-License-Identifier: Apache-2.0
// size_text.h: byte counts as people write them: "64M", "1K", "100".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ciuic {

// Digits, then none or one of K, M, G, T (of 1024, either case), which "iB" or "B" may follow.
// Nothing for any other text, and for what does not fit into an int64_t.
std::optional<int64_t> parse_size(std::string_view text);

// The shortest such text of the same value: 65536 is "64K", 1000 is "1000".
std::string format_size(int64_t bytes);

}  // namespace ciuic
