// SPDX-License-Identifier: Apache-2.0
// cuda.h: the part of the CUDA runtime that Ciuic uses, opened at run time.
//
// A copy that the user names comes first, then the program's own: where PyTorch or another library
// has loaded a libcudart, that one is taken. Streams and events are pointers of the driver's, here
// void*, so that those of another copy of the runtime can be used. The null stream is the legacy
// default one, which waits for all other streams of its device that were not made with
// kNonBlocking, and they for it.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "ciuic/status.h"

namespace ciuic::cuda {

using Stream = void*;
using Event = void*;
using HostFunction = void(void* user_data);

inline constexpr int kSuccess = 0;
inline constexpr int kOutOfMemory = 2;
inline constexpr int kOldDriver = 35;  // older than the runtime wants, or none
inline constexpr int kNoDevice = 100;
inline constexpr int kNotReady = 600;              // of an event's query
inline constexpr unsigned kNonBlocking = 1;        // a stream beside the legacy default one
inline constexpr unsigned kDisableTiming = 2;      // an event that only orders
inline constexpr unsigned kHostAllocPortable = 1;  // pinned for all devices
inline constexpr int kHostToDevice = 1;
inline constexpr int kDeviceToHost = 2;
inline constexpr int kDeviceToDevice = 3;
inline constexpr int kCapabilityMajor = 75;  // of cudaDeviceGetAttribute
inline constexpr int kCapabilityMinor = 76;
inline constexpr int kMemoryIsDevice = 2;  // Attributes::type
inline constexpr int kMemoryIsManaged = 3;

// Of cudaPointerGetAttributes; room for what later versions add.
struct Attributes {
  int type = 0;
  int device = -1;
  void* device_pointer = nullptr;
  void* host_pointer = nullptr;
  long reserved[16] = {};
};

// Of what any runtime since 11.2 has. A test may stand in for each. They return the runtime's code.
struct Functions {
  int (*runtime_get_version)(int* version) = nullptr;
  int (*driver_get_version)(int* version) = nullptr;  // 0: no driver
  const char* (*get_error_string)(int code) = nullptr;
  int (*get_last_error)() = nullptr;  // and forgets it
  int (*get_device_count)(int* count) = nullptr;
  int (*get_device)(int* device) = nullptr;
  int (*set_device)(int device) = nullptr;  // of this thread
  int (*device_get_pci_bus_id)(char* text, int length, int device) = nullptr;
  int (*device_get_attribute)(int* value, int attribute, int device) = nullptr;
  int (*pointer_get_attributes)(Attributes* attributes, const void* pointer) = nullptr;
  int (*malloc)(void** memory, size_t bytes) = nullptr;
  int (*free)(void* memory) = nullptr;
  // In a stream's order, from a pool that keeps what is freed.
  int (*malloc_async)(void** memory, size_t bytes, Stream stream) = nullptr;
  int (*free_async)(void* memory, Stream stream) = nullptr;
  int (*host_alloc)(void** memory, size_t bytes, unsigned flags) = nullptr;
  int (*free_host)(void* memory) = nullptr;
  int (*memcpy_async)(void* target, const void* source, size_t bytes, int kind,
                      Stream stream) = nullptr;
  int (*stream_create_with_flags)(Stream* stream, unsigned flags) = nullptr;
  int (*stream_destroy)(Stream stream) = nullptr;
  int (*stream_synchronize)(Stream stream) = nullptr;
  int (*stream_wait_event)(Stream stream, Event event, unsigned flags) = nullptr;
  int (*stream_is_capturing)(Stream stream, int* status) = nullptr;  // 0: it is not
  int (*event_create_with_flags)(Event* event, unsigned flags) = nullptr;
  int (*event_destroy)(Event event) = nullptr;
  int (*event_record)(Event event, Stream stream) = nullptr;
  int (*event_query)(Event event) = nullptr;  // kNotReady: it is still to come
  int (*event_synchronize)(Event event) = nullptr;
  int (*launch_host_func)(Stream stream, HostFunction* function, void* user_data) = nullptr;
};

struct Library {
  Functions functions;
  std::string path;
  int runtime_version = 0;  // 13000 is 13.0
  int driver_version = 0;
  int devices = 0;  // 1 or more
};

// Whether a CUDA runtime is in the process already. Cheap.
bool is_loaded();

// The process's CUDA, opened by the first call, whose answer stays. `library`: a path that is taken
// instead of all others, "" for none (CIUIC_CUDA_LIBRARY). Where there is a driver, it is started,
// and a child that is forked afterwards cannot use CUDA.
//   kUnavailable  no runtime (what was tried), no driver, or no device: each in its own words
Result<const Library*> open_cuda(const std::string& library);

// What open_cuda() does each time: `library`; without it, one of `names` that is loaded, else one
// that can be.
Result<Library> find_cuda(const std::string& library, std::span<const char* const> names);

// "cudaMemcpyAsync failed: out of memory (2)"; kResource where memory is short, else kSystem. Ok
// for kSuccess. The runtime's own note of the last error is left alone.
Status error_of(const Functions& functions, const char* what, int code);

// Makes a device the thread's, for as long as it lives.
class DeviceScope {
 public:
  DeviceScope(const Functions& functions, int device);
  ~DeviceScope();
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  const Functions& functions_;
  int before_ = -1;  // -1: it was that one
};

}  // namespace ciuic::cuda
