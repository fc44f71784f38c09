// SPDX-License-Identifier: Apache-2.0
// size_text.cc: byte counts from and to text.

#include "base/size_text.h"

#include <charconv>
#include <system_error>

namespace ciuic {

namespace {

constexpr std::string_view kSuffixes = "KMGT";

char upper(char letter) {
  return 'a' <= letter && letter <= 'z' ? static_cast<char>(letter - 'a' + 'A') : letter;
}

}  // namespace

std::optional<int64_t> parse_size(std::string_view text) {
  int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || value < 0) return std::nullopt;

  std::string_view suffix(rest, static_cast<size_t>(end - rest));
  if (suffix.empty() || suffix == "B") return value;
  const size_t power = kSuffixes.find(upper(suffix.front()));
  if (power == std::string_view::npos) return std::nullopt;
  suffix.remove_prefix(1);
  if (!suffix.empty() && suffix != "B" && suffix != "iB") return std::nullopt;

  const int shift = 10 * (static_cast<int>(power) + 1);
  if (value > (INT64_MAX >> shift)) return std::nullopt;
  return value << shift;
}

std::string format_size(int64_t bytes) {
  int power = 0;
  const int most = static_cast<int>(kSuffixes.size());
  while (bytes != 0 && bytes % 1024 == 0 && power < most) {
    bytes /= 1024;
    ++power;
  }
  std::string text = std::to_string(bytes);
  if (power > 0) text += kSuffixes[static_cast<size_t>(power) - 1];
  return text;
}

}  // namespace ciuic
