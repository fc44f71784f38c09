// SPDX-License-Identifier: Apache-2.0
// cuda.cc: calls of the fake libcudart.

#include "nccl/cuda.h"

#include <cstdlib>

#include "cudart/fake_cuda.h"

extern "C" {
int cudaGetDevice(int* device);
int cudaSetDevice(int device);
int cudaGetLastError();
int cudaDeviceGetAttribute(int* value, int attribute, int device);
int cudaDeviceGetPCIBusId(char* text, int length, int device);
int cudaPointerGetAttributes(void* attributes, const void* pointer);
const char* cudaGetErrorString(int code);
}

namespace ciuic::fake_nccl {

std::optional<int> current_device() {
  int device = 0;
  return cudaGetDevice(&device) == 0 ? std::optional(device) : std::nullopt;
}

std::optional<int64_t> bus_of(int device) {
  char text[32] = {};
  if (cudaDeviceGetPCIBusId(text, sizeof text, device) != 0) return std::nullopt;
  // "0000:3B:00.0" is 3b000, as NCCL prints it.
  int64_t number = 0;
  for (const char* letter = text; *letter != '\0'; ++letter) {
    const char digit[] = {*letter, '\0'};
    char* end = nullptr;
    const long value = std::strtol(digit, &end, 16);
    if (end != digit) number = number * 16 + value;
  }
  return number;
}

std::optional<int> capability_of(int device) {
  constexpr int kMajor = 75;
  constexpr int kMinor = 76;
  int major = 0;
  int minor = 0;
  if (cudaDeviceGetAttribute(&major, kMajor, device) != 0) return std::nullopt;
  if (cudaDeviceGetAttribute(&minor, kMinor, device) != 0) return std::nullopt;
  return 10 * major + minor;
}

std::string cuda_error() { return "'" + std::string(cudaGetErrorString(cudaGetLastError())) + "'"; }

OnDevice::OnDevice(int device) {
  const std::optional<int> before = current_device();
  if (!before.has_value() || *before == device) return;
  before_ = *before;
  cudaSetDevice(device);
}

OnDevice::~OnDevice() {
  if (before_ >= 0) cudaSetDevice(before_);
}

std::byte* bytes_of(const void* pointer, size_t size, int device) {
  struct {
    int type;
    int device;
    void* device_pointer;
    void* host_pointer;
  } attributes{};
  if (pointer == nullptr || ciuic_fake_room(pointer) < size) return nullptr;
  if (cudaPointerGetAttributes(&attributes, pointer) != 0) return nullptr;
  void* host = ciuic_fake_host_of(pointer);
  if (host == nullptr) return static_cast<std::byte*>(attributes.host_pointer);
  return attributes.device == device ? static_cast<std::byte*>(host) : nullptr;
}

}  // namespace ciuic::fake_nccl
