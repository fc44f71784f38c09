// SPDX-License-Identifier: Apache-2.0
// store.h: a small key-value store in which the ranks of a group find each other.
//
// An implementation may be called from the joining thread only. Keys are short printable text,
// values are bytes, at most 64 KiB.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "ciuic/export.h"
#include "ciuic/status.h"

namespace ciuic {

class CIUIC_EXPORT Store {
 public:
  virtual ~Store();

  // Overwrites what was there.
  virtual Status set(const std::string& key, const std::string& value) = 0;

  // Waits until the key is there, `timeout_ms` at most. kTimeout names the key.
  virtual Result<std::string> get(const std::string& key, int64_t timeout_ms) = 0;

  // Adds `amount` to the number at `key` (none counts as 0) and returns the sum, atomically.
  virtual Result<int64_t> add(const std::string& key, int64_t amount) = 0;

  // What `describe()` shows, such as "tcp://10.0.0.1:4711" or "torch".
  virtual std::string name() const = 0;

  // Whether only those who know the job's secret can read it. False for torch's store: a secret
  // published there keeps strays out, not attackers.
  virtual bool is_private() const { return false; }
};

// Opens what CIUIC_STORE names: "file:///directory" or "tcp://host:port". kInvalidArgument: no such
// form, with the forms that there are.
CIUIC_EXPORT Result<std::unique_ptr<Store>> open_store(const std::string& url, int64_t timeout_ms);

}  // namespace ciuic
