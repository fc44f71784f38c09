// SPDX-License-Identifier: Apache-2.0
// store_limits.h: what our stores take, and the errors that they share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "ciuic/status.h"

namespace ciuic::bootstrap {

inline constexpr size_t kMaxKeyBytes = 200;
inline constexpr size_t kMaxValueBytes = 64 * 1024;

// kInvalidArgument: a key that is empty, long or not printable, or a value that is too large.
Status check_entry(const std::string& key, const std::string& value);

// kTimeout, naming store and key.
Status absent(const std::string& store, const std::string& key, int64_t timeout_ms);

// The number in `value` (empty counts as 0) plus `amount`. kInvalidArgument: no number, or a sum
// that does not fit.
Result<int64_t> add_to_text(const std::string& key, const std::string& value, int64_t amount);

}  // namespace ciuic::bootstrap
