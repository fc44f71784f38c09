// SPDX-License-Identifier: Apache-2.0
// cuda.h: what the fake libnccl asks the fake libcudart, which it is linked to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace ciuic::fake_nccl {

std::optional<int> current_device();           // none: cuda_error() says why
std::optional<int64_t> bus_of(int device);     // likewise
std::optional<int> capability_of(int device);  // likewise; 90 is 9.0
std::string cuda_error();                      // and forgets it

// Makes a device the thread's, for as long as it lives.
class OnDevice {
 public:
  explicit OnDevice(int device);
  ~OnDevice();
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  int before_ = -1;
};

// Where the bytes of a buffer of that size lie, which is on `device` or pinned; null: it is none.
std::byte* bytes_of(const void* pointer, size_t size, int device);

}  // namespace ciuic::fake_nccl
