// SPDX-License-Identifier: Apache-2.0
// process_driver.cc: a weak reference, so that the last communicator takes the driver with it.

#include "communicator/process_driver.h"

#include <mutex>

#include "base/fork.h"

namespace ciuic {

Result<std::shared_ptr<engine::Driver>> process_driver(const engine::DriverOptions& options) {
  static std::mutex mutex;
  static std::weak_ptr<engine::Driver> shared;
  static uint32_t made_in = 0;
  std::lock_guard<std::mutex> lock(mutex);
  if (made_in == fork_generation()) {
    if (auto driver = shared.lock()) return driver;
  }
  auto driver = engine::Driver::create(options);
  if (driver.ok()) {
    shared = *driver;
    made_in = fork_generation();
  }
  return driver;
}

std::shared_ptr<memory::SharedPool> process_shared_pool() {
  static std::mutex mutex;
  static std::weak_ptr<memory::SharedPool> shared;
  static uint32_t made_in = 0;
  std::lock_guard<std::mutex> lock(mutex);
  if (made_in == fork_generation()) {
    if (auto pool = shared.lock()) return pool;
  }
  auto pool = memory::SharedPool::create();
  shared = pool;
  made_in = fork_generation();
  return pool;
}

}  // namespace ciuic
