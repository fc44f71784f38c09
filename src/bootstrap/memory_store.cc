// SPDX-License-Identifier: Apache-2.0
// memory_store.cc: a map, a lock and a condition.

#include "bootstrap/memory_store.h"

#include <chrono>

#include "bootstrap/store_limits.h"

namespace ciuic::bootstrap {

Status MemoryStore::set(const std::string& key, const std::string& value) {
  CIUIC_RETURN_IF_ERROR(check_entry(key, value));
  const std::lock_guard lock(mutex_);
  values_[key] = value;
  changed_.notify_all();
  return {};
}

Result<std::string> MemoryStore::get(const std::string& key, int64_t timeout_ms) {
  CIUIC_RETURN_IF_ERROR(check_entry(key, ""));
  std::unique_lock lock(mutex_);
  const bool there = changed_.wait_for(lock, std::chrono::milliseconds(timeout_ms),
                                       [&] { return values_.count(key) > 0; });
  if (!there) return absent(name(), key, timeout_ms);
  return values_[key];
}

Result<int64_t> MemoryStore::add(const std::string& key, int64_t amount) {
  CIUIC_RETURN_IF_ERROR(check_entry(key, ""));
  const std::lock_guard lock(mutex_);
  std::string& value = values_[key];
  Result<int64_t> sum = add_to_text(key, value, amount);
  if (!sum.ok()) return sum;
  value = std::to_string(*sum);
  changed_.notify_all();
  return sum;
}

void MemoryStore::erase(const std::string& key) {
  const std::lock_guard lock(mutex_);
  values_.erase(key);
}

std::vector<std::string> MemoryStore::keys() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> keys;
  for (const auto& [key, value] : values_) keys.push_back(key);
  return keys;
}

}  // namespace ciuic::bootstrap
