// SPDX-License-Identifier: Apache-2.0
// memory_store.h: a store within one process, for ranks that are threads. Any thread may call.
#pragma once

#include <condition_variable>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "bootstrap/erasable.h"
#include "ciuic/store.h"

namespace ciuic::bootstrap {

class MemoryStore final : public Store, public Erasable {
 public:
  Status set(const std::string& key, const std::string& value) override;
  Result<std::string> get(const std::string& key, int64_t timeout_ms) override;
  Result<int64_t> add(const std::string& key, int64_t amount) override;
  std::string name() const override { return "memory"; }
  bool is_private() const override { return true; }
  void erase(const std::string& key) override;

  std::vector<std::string> keys() const;

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
};

}  // namespace ciuic::bootstrap
