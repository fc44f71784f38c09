// SPDX-License-Identifier: Apache-2.0
// memory.h: what cudaMalloc and cudaHostAlloc gave.
//
// A device pointer is an address that nobody may touch, so that host code which takes it for its
// own dies at once; the bytes lie elsewhere, and the fake alone knows where. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

namespace ciuic::fake_cuda {

struct Place {
  bool is_device = false;
  bool is_pinned = false;
  int device = -1;             // where it lies, or was current when it was pinned
  std::byte* bytes = nullptr;  // that host code may touch
  size_t room = SIZE_MAX;      // to the end of the allocation; unknown for other memory
};

class Memory {
 public:
  Memory(int devices, size_t device_bytes) : left_(static_cast<size_t>(devices), device_bytes) {}

  // Null: there is not so much left.
  void* allocate(size_t bytes, int device);
  void* pin(size_t bytes, int device);

  // False: it is the beginning of no such allocation.
  bool free(void* pointer, bool is_device);

  Place find(const void* pointer);

 private:
  struct Allocation {
    Place place;
    size_t mapped = 0;
  };

  std::mutex mutex_;
  std::map<uintptr_t, Allocation> all_;
  std::vector<size_t> left_;  // a device
};

}  // namespace ciuic::fake_cuda
