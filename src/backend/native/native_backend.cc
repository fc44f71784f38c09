// SPDX-License-Identifier: Apache-2.0
// native_backend.cc: hands checked and bound operations to the driver.

#include "backend/native/native_backend.h"

#include <utility>

#include "collective/operations.h"

namespace ciuic::backend {

static Status closed() {
  return {StatusCode::kClosed, "the communicator is closed; make a new one"};
}

NativeBackend::NativeBackend(NativeOptions options)
    : driver_(std::move(options.driver)),
      group_(driver_->add_group(std::move(options.group), std::move(options.hooks))),
      chooser_(std::move(options.chooser)),
      timeout_ms_(options.timeout_ms) {}

NativeBackend::~NativeBackend() { close(); }

Capabilities NativeBackend::capabilities() const {
  return {.name = "native", .cuda = false, .can_abort = true};
}

Result<Work> NativeBackend::submit(const collective::Arguments& arguments) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (group_ == nullptr) return closed();
  Result<engine::Request> request = collective::prepare(chooser_, arguments);
  if (!request.ok()) return request.status();
  const int64_t asked_ms = arguments.options.timeout_ms;
  request->timeout_ms = asked_ms >= 0 ? asked_ms : timeout_ms_;
  const TimeNs now = now_ns();
  request->deadline = deadline_after(now, request->timeout_ms);
  return Work(driver_->submit(group_, std::move(*request), now, arguments.options.wait_follows));
}

void NativeBackend::progress() { driver_->nudge(); }

void NativeBackend::abort(const Status& status) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (group_ != nullptr) driver_->fail_group(group_, status);
}

void NativeBackend::close() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (group_ != nullptr) driver_->remove_group(std::exchange(group_, nullptr));
}

Status NativeBackend::status() {
  std::lock_guard<std::mutex> lock(mutex_);
  return group_ == nullptr ? closed() : driver_->group_status(group_);
}

size_t NativeBackend::staging_bytes() { return driver_->staging_bytes(); }

size_t NativeBackend::link_bytes() {
  std::lock_guard<std::mutex> lock(mutex_);
  return group_ == nullptr ? 0 : driver_->link_bytes(group_);
}

}  // namespace ciuic::backend
