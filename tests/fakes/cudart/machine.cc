// SPDX-License-Identifier: Apache-2.0
// machine.cc: settings of the environment, counts of calls, events by their handles.

#include "cudart/machine.h"

#include <unistd.h>

#include <cstdlib>
#include <sstream>
#include <utility>

namespace ciuic::fake_cuda {

thread_local int current_device = 0;
thread_local int last_error = kSuccess;
thread_local bool in_host_function = false;

static int64_t number_of(const char* name, int64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr || *text == '\0' ? otherwise : std::strtoll(text, nullptr, 10);
}

// CUDA_VISIBLE_DEVICES: numbers up to the first that there is not.
static std::vector<int> visible_devices(int devices) {
  std::vector<int> visible;
  const char* text = std::getenv("CUDA_VISIBLE_DEVICES");
  if (text == nullptr) {
    for (int device = 0; device < devices; ++device) visible.push_back(device);
    return visible;
  }
  std::istringstream numbers(text);
  int device = 0;
  while (numbers >> device && 0 <= device && device < devices) {
    visible.push_back(device);
    numbers.ignore(1, ',');
  }
  return visible;
}

static Settings read_settings() {
  Settings all;
  all.devices = visible_devices(static_cast<int>(number_of("FAKE_CUDA_DEVICES", 1)));
  all.driver_version = static_cast<int>(number_of("FAKE_CUDA_DRIVER", all.driver_version));
  all.delay_us = number_of("FAKE_CUDA_DELAY_US", all.delay_us);
  all.device_bytes =
      static_cast<size_t>(number_of("FAKE_CUDA_MEMORY", static_cast<int64_t>(all.device_bytes)));
  all.capability = static_cast<int>(number_of("FAKE_CUDA_CAPABILITY", all.capability));
  return all;
}

Machine::Machine(Settings all)
    : settings(std::move(all)),
      memory(static_cast<int>(settings.devices.size()), settings.device_bytes),
      streams(static_cast<int>(settings.devices.size())),
      pid_(::getpid()) {
  const char* names = std::getenv("FAKE_CUDA_DROP");
  if (names != nullptr) drop(names);
}

Machine& Machine::get() {
  static Machine* const machine = new Machine(read_settings());
  return *machine;
}

int Machine::check() const {
  if (settings.driver_version < kVersion) return kInsufficientDriver;
  if (settings.devices.empty()) return kNoDevice;
  return ::getpid() == pid_ ? kSuccess : kInitializationError;
}

void Machine::count(const char* name) {
  const std::lock_guard lock(mutex_);
  ++calls_[name];
}

int64_t Machine::calls(const std::string& name) {
  const std::lock_guard lock(mutex_);
  const auto found = calls_.find(name);
  return found == calls_.end() ? 0 : found->second;
}

void Machine::drop(const char* names) {
  std::set<std::string, std::less<>> dropped;
  std::istringstream list(names);
  for (std::string name; std::getline(list, name, ',');) dropped.insert(name);
  const std::lock_guard lock(mutex_);
  dropped_ = std::move(dropped);
}

bool Machine::is_dropped(const char* name) {
  const std::lock_guard lock(mutex_);
  return dropped_.count(std::string_view(name)) > 0;
}

void* Machine::create_event(int device) {
  auto event = std::make_unique<Event>();
  event->device = device;
  void* handle = event.get();
  const std::lock_guard lock(mutex_);
  events_[handle] = std::move(event);
  return handle;
}

bool Machine::destroy_event(void* handle) {
  const std::lock_guard lock(mutex_);
  return events_.erase(handle) > 0;
}

bool Machine::set_points(void* handle, std::vector<Point> points) {
  const std::lock_guard lock(mutex_);
  const auto found = events_.find(handle);
  if (found == events_.end()) return false;
  found->second->points = std::move(points);
  return true;
}

std::unique_ptr<Event> Machine::find_event(void* handle) {
  const std::lock_guard lock(mutex_);
  const auto found = events_.find(handle);
  return found == events_.end() ? nullptr : std::make_unique<Event>(*found->second);
}

}  // namespace ciuic::fake_cuda
