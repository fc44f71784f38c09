// SPDX-License-Identifier: Apache-2.0
// machine.h: the process's devices, and what each call of CUDA's begins with.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "cudart/codes.h"
#include "cudart/memory.h"
#include "cudart/streams.h"

namespace ciuic::fake_cuda {

// As the environment has them when the first function is called (README.md).
struct Settings {
  std::vector<int> devices;  // those that are visible: numbers of the machine's
  int driver_version = kVersion;
  int64_t delay_us = 200;
  size_t device_bytes = size_t{4} << 30;
  int capability = 90;  // 9.0
};

struct Event {
  int device = 0;
  std::vector<Point> points;  // of the last record
};

class Machine {
 public:
  // Of the process; made by the first call, never freed.
  static Machine& get();

  const Settings settings;
  Memory memory;
  Streams streams;

  // kSuccess, or why no function can work at all: no driver, no device, a child of a fork.
  int check() const;

  void count(const char* name);
  int64_t calls(const std::string& name);
  void drop(const char* names);
  bool is_dropped(const char* name);

  void* create_event(int device);
  bool destroy_event(void* handle);
  bool set_points(void* handle, std::vector<Point> points);
  std::unique_ptr<Event> find_event(void* handle);  // a copy; null: there is none

 private:
  explicit Machine(Settings all);

  const int pid_;
  std::mutex mutex_;
  std::map<std::string, int64_t, std::less<>> calls_;
  std::set<std::string, std::less<>> dropped_;
  std::map<void*, std::unique_ptr<Event>> events_;
};

// Of this thread.
extern thread_local int current_device;
extern thread_local int last_error;
extern thread_local bool in_host_function;

// What a function of CUDA's does: counts, refuses, does nothing, or `body`; keeps the error.
template <typename Body>
int call(const char* name, const Body& body) {
  Machine& machine = Machine::get();
  machine.count(name);
  if (machine.is_dropped(name)) return kSuccess;
  int code = in_host_function ? kNotPermitted : machine.check();
  if (code == kSuccess) code = body(machine);
  if (code != kSuccess) last_error = code;
  return code;
}

}  // namespace ciuic::fake_cuda
