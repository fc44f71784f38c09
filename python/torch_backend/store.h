// SPDX-License-Identifier: Apache-2.0
// store.h: the store in which torch's ranks meet, as the core's join wants it.
//
// Everything of ours stands under "ciuic/". It is torch's open store: the secret that is published
// there keeps strays out of the group, not attackers (is_private() is false).
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <atomic>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "ciuic/store.h"

namespace ciuic::torch_backend {

class TorchStore final : public Store {
 public:
  explicit TorchStore(c10::intrusive_ptr<c10d::Store> store) : store_(std::move(store)) {}

  Status set(const std::string& key, const std::string& value) override;
  Result<std::string> get(const std::string& key, int64_t timeout_ms) override;
  Result<int64_t> add(const std::string& key, int64_t amount) override;
  std::string name() const override { return "torch"; }

 private:
  c10::intrusive_ptr<c10d::Store> store_;
};

}  // namespace ciuic::torch_backend
