// SPDX-License-Identifier: Apache-2.0
// runtime.cc: CUDA's functions: versions, errors, devices, memory.

#include <cstdio>
#include <cstring>

#include "cudart/fake_cuda.h"
#include "cudart/machine.h"

using namespace ciuic::fake_cuda;  // NOLINT: the functions have C's names

FAKE_API int cudaRuntimeGetVersion(int* version) {
  *version = kVersion;
  return kSuccess;
}

FAKE_API int cudaDriverGetVersion(int* version) {
  *version = Machine::get().settings.driver_version;
  return kSuccess;
}

FAKE_API const char* cudaGetErrorString(int code) {
  switch (code) {
    case kSuccess: return "no error";
    case kInvalidValue: return "invalid argument";
    case kMemoryAllocation: return "out of memory";
    case kInitializationError: return "initialization error";
    case kInvalidMemcpyDirection: return "invalid copy direction for memcpy";
    case kInsufficientDriver: return "CUDA driver version is insufficient for CUDA runtime version";
    case kNoDevice: return "no CUDA-capable device is detected";
    case kInvalidDevice: return "invalid device ordinal";
    case kInvalidResourceHandle: return "invalid resource handle";
    case kNotReady: return "device not ready";
    case kNotPermitted: return "operation not permitted";
    default: return "unrecognized error code";
  }
}

FAKE_API int cudaPeekAtLastError() { return last_error; }

FAKE_API int cudaGetLastError() {
  const int code = last_error;
  last_error = kSuccess;
  return code;
}

FAKE_API int cudaGetDeviceCount(int* count) {
  *count = 0;
  return call("cudaGetDeviceCount", [&](const Machine& machine) {
    *count = static_cast<int>(machine.settings.devices.size());
    return kSuccess;
  });
}

FAKE_API int cudaGetDevice(int* device) {
  return call("cudaGetDevice", [&](const Machine&) {
    *device = current_device;
    return kSuccess;
  });
}

static bool is_device(const Machine& machine, int device) {
  return 0 <= device && device < static_cast<int>(machine.settings.devices.size());
}

FAKE_API int cudaSetDevice(int device) {
  return call("cudaSetDevice", [&](const Machine& machine) {
    if (!is_device(machine, device)) return kInvalidDevice;
    current_device = device;
    return kSuccess;
  });
}

FAKE_API int cudaDeviceGetPCIBusId(char* text, int length, int device) {
  return call("cudaDeviceGetPCIBusId", [&](const Machine& machine) {
    if (!is_device(machine, device)) return kInvalidDevice;
    const int number = machine.settings.devices[static_cast<size_t>(device)];
    const int needed =
        std::snprintf(text, static_cast<size_t>(length), "0000:%02X:00.0", number + 1);
    return needed < length ? kSuccess : kInvalidValue;
  });
}

FAKE_API int cudaDeviceGetAttribute(int* value, int attribute, int device) {
  return call("cudaDeviceGetAttribute", [&](const Machine& machine) {
    constexpr int kMajor = 75;
    constexpr int kMinor = 76;
    if (!is_device(machine, device)) return kInvalidDevice;
    if (attribute != kMajor && attribute != kMinor) return kInvalidValue;
    const int capability = machine.settings.capability;
    *value = attribute == kMajor ? capability / 10 : capability % 10;
    return kSuccess;
  });
}

FAKE_API int cudaDeviceSynchronize() {
  return call("cudaDeviceSynchronize", [](Machine& machine) {
    machine.streams.wait(machine.streams.points_of_device(current_device));
    return kSuccess;
  });
}

// ---- memory ----

struct PointerAttributes {
  int type;
  int device;
  void* device_pointer;
  void* host_pointer;
};

FAKE_API int cudaPointerGetAttributes(PointerAttributes* attributes, const void* pointer) {
  return call("cudaPointerGetAttributes", [&](Machine& machine) {
    void* same = const_cast<void*>(pointer);
    const Place place = machine.memory.find(pointer);
    if (place.is_device) {
      *attributes = {
          .type = 2, .device = place.device, .device_pointer = same, .host_pointer = nullptr};
    } else if (place.is_pinned) {
      *attributes = {
          .type = 1, .device = place.device, .device_pointer = same, .host_pointer = same};
    } else {
      *attributes = {.type = 0, .device = -2, .device_pointer = nullptr, .host_pointer = same};
    }
    return kSuccess;
  });
}

FAKE_API int cudaMalloc(void** memory, size_t bytes) {
  return call("cudaMalloc", [&](Machine& machine) {
    *memory = bytes == 0 ? nullptr : machine.memory.allocate(bytes, current_device);
    return bytes == 0 || *memory != nullptr ? kSuccess : kMemoryAllocation;
  });
}

FAKE_API int cudaHostAlloc(void** memory, size_t bytes, unsigned) {
  return call("cudaHostAlloc", [&](Machine& machine) {
    *memory = bytes == 0 ? nullptr : machine.memory.pin(bytes, current_device);
    return bytes == 0 || *memory != nullptr ? kSuccess : kMemoryAllocation;
  });
}

// Both wait for all work, as CUDA's do.
static int free_memory(Machine& machine, void* memory, bool on_device) {
  if (memory == nullptr) return kSuccess;
  for (size_t device = 0; device < machine.settings.devices.size(); ++device) {
    machine.streams.wait(machine.streams.points_of_device(static_cast<int>(device)));
  }
  return machine.memory.free(memory, on_device) ? kSuccess : kInvalidValue;
}

FAKE_API int cudaFree(void* memory) {
  return call("cudaFree", [&](Machine& machine) { return free_memory(machine, memory, true); });
}

FAKE_API int cudaFreeHost(void* memory) {
  return call("cudaFreeHost",
              [&](Machine& machine) { return free_memory(machine, memory, false); });
}
