// SPDX-License-Identifier: Apache-2.0
// store.cc: torch's store says by exceptions what the core wants as values.

#include "store.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <thread>
#include <vector>

namespace ciuic::torch_backend {

namespace {

using Clock = std::chrono::steady_clock;

// A wait inside torch's store keeps all other threads from it, so the store is asked again and
// again instead, ever more seldom.
constexpr std::chrono::microseconds kFirstPause{200};
constexpr std::chrono::microseconds kLongestPause{10'000};

Status failed(const std::exception& error) {
  return {StatusCode::kUnavailable, std::string("torch's store: ") + error.what()};
}

std::string ours(const std::string& key) { return "ciuic/" + key; }

}  // namespace

Status TorchStore::set(const std::string& key, const std::string& value) {
  try {
    store_->set(ours(key), std::vector<uint8_t>(value.begin(), value.end()));
    return {};
  } catch (const std::exception& error) {
    return failed(error);
  }
}

Result<std::string> TorchStore::get(const std::string& key, int64_t timeout_ms) {
  const auto deadline = Clock::now() + std::chrono::milliseconds(timeout_ms);
  const std::vector<std::string> keys = {ours(key)};
  auto pause = kFirstPause;
  try {
    while (!store_->check(keys)) {
      if (Clock::now() >= deadline) {
        return Status(StatusCode::kTimeout, "key '" + keys[0] + "' is not in torch's store after " +
                                                std::to_string(timeout_ms) + " ms");
      }
      std::this_thread::sleep_for(pause);
      pause = std::min(2 * pause, kLongestPause);
    }
    const std::vector<uint8_t> value = store_->get(keys[0]);
    return std::string(value.begin(), value.end());
  } catch (const std::exception& error) {
    return failed(error);
  }
}

Result<int64_t> TorchStore::add(const std::string& key, int64_t amount) {
  try {
    return store_->add(ours(key), amount);
  } catch (const std::exception& error) {
    return failed(error);
  }
}

}  // namespace ciuic::torch_backend
