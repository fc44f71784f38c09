// SPDX-License-Identifier: Apache-2.0
// runtime.h: the fake CUDA runtime (tests/fakes), by the names of its functions.
#pragma once

#include <c10/util/Exception.h>
#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>

namespace fake_gpu {

// The function of that name; `Function` is its type.
template <typename Function>
Function* find(const char* name) {
  static void* const library = dlopen(std::getenv("CIUIC_CUDA_LIBRARY"), RTLD_NOW | RTLD_GLOBAL);
  void* const found = library == nullptr ? nullptr : dlsym(library, name);
  TORCH_CHECK(found != nullptr, "the fake CUDA runtime has no ", name);
  return reinterpret_cast<Function*>(found);
}

// Calls it, and throws where it returns an error.
#define FAKE_GPU_CALL(Type, name, ...)                           \
  do {                                                           \
    static auto* const function = ::fake_gpu::find<Type>(#name); \
    const int code = function(__VA_ARGS__);                      \
    TORCH_CHECK(code == 0, #name, " gives ", code);              \
  } while (false)

inline int current_device() {
  int device = 0;
  FAKE_GPU_CALL(int(int*), cudaGetDevice, &device);
  return device;
}

inline void set_device(int device) { FAKE_GPU_CALL(int(int), cudaSetDevice, device); }

inline void* new_stream() {
  void* stream = nullptr;
  FAKE_GPU_CALL(int(void**, unsigned), cudaStreamCreateWithFlags, &stream, 1U);
  return stream;
}

inline void synchronize(void* stream) { FAKE_GPU_CALL(int(void*), cudaStreamSynchronize, stream); }

// What stands on `to` from now on waits for what stands on `from`.
inline void join(void* from, void* to) {
  FAKE_GPU_CALL(int(void*, void*), ciuic_fake_join, from, to);
}

inline void* host_of(const void* device_pointer) {
  static auto* const function = find<void*(const void*)>("ciuic_fake_host_of");
  return function(device_pointer);
}

// Makes a device the thread's, for as long as it lives.
class OnDevice {
 public:
  explicit OnDevice(int device) : before_(current_device()) { set_device(device); }
  ~OnDevice() { set_device(before_); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  const int before_;
};

}  // namespace fake_gpu
