// SPDX-License-Identifier: Apache-2.0
// store_limits.cc: checks that every store makes.

#include "bootstrap/store_limits.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace ciuic::bootstrap {

Status check_entry(const std::string& key, const std::string& value) {
  const bool printable =
      std::all_of(key.begin(), key.end(), [](char c) { return c > ' ' && c <= '~'; });
  if (key.empty() || key.size() > kMaxKeyBytes || !printable) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("a store's key is 1 to {} printable characters", kMaxKeyBytes));
  }
  if (value.size() > kMaxValueBytes) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("the value of {} has {} bytes; {} are the limit", key, value.size(),
                              kMaxValueBytes));
  }
  return {};
}

Status absent(const std::string& store, const std::string& key, int64_t timeout_ms) {
  return Status(StatusCode::kTimeout,
                fmt::format("store {}: no key {} within {} ms", store, key, timeout_ms));
}

Result<int64_t> add_to_text(const std::string& key, const std::string& value, int64_t amount) {
  int64_t number = 0;
  const char* end = value.data() + value.size();
  const auto [rest, error] = std::from_chars(value.data(), end, number);
  int64_t sum = 0;
  const bool numeric = value.empty() || (error == std::errc{} && rest == end);
  if (!numeric || __builtin_add_overflow(number, amount, &sum)) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("cannot add {} to what is stored at {}", amount, key));
  }
  return sum;
}

}  // namespace ciuic::bootstrap
