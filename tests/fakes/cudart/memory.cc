// SPDX-License-Identifier: Apache-2.0
// memory.cc: pairs of mappings, and which one a pointer is in.

#include "cudart/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

namespace ciuic::fake_cuda {

static constexpr size_t kPage = 4096;
static constexpr size_t kMostPoisoned = size_t{64} << 20;
static constexpr int kPoison = 0xCD;  // what cudaMalloc gives is not zero

static std::byte* map(size_t bytes, int protection) {
  void* memory =
      ::mmap(nullptr, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<std::byte*>(memory);
}

void* Memory::allocate(size_t bytes, int device) {
  const size_t mapped = (bytes + kPage - 1) / kPage * kPage;
  const std::lock_guard lock(mutex_);
  size_t& left = left_[static_cast<size_t>(device)];
  if (mapped < bytes || mapped > left) return nullptr;
  std::byte* pointer = map(mapped, PROT_NONE);
  std::byte* host = map(mapped, PROT_READ | PROT_WRITE);
  if (pointer == nullptr || host == nullptr) {
    if (pointer != nullptr) ::munmap(pointer, mapped);
    if (host != nullptr) ::munmap(host, mapped);
    return nullptr;
  }
  std::memset(host, kPoison, std::min(bytes, kMostPoisoned));
  left -= mapped;
  const Place place = {.is_device = true, .device = device, .bytes = host, .room = bytes};
  all_[reinterpret_cast<uintptr_t>(pointer)] = {place, mapped};
  return pointer;
}

void* Memory::pin(size_t bytes, int device) {
  const size_t mapped = (bytes + kPage - 1) / kPage * kPage;
  std::byte* pointer = mapped < bytes ? nullptr : map(mapped, PROT_READ | PROT_WRITE);
  if (pointer == nullptr) return nullptr;
  const std::lock_guard lock(mutex_);
  const Place place = {.is_pinned = true, .device = device, .bytes = pointer, .room = bytes};
  all_[reinterpret_cast<uintptr_t>(pointer)] = {place, mapped};
  return pointer;
}

bool Memory::free(void* pointer, bool is_device) {
  const std::lock_guard lock(mutex_);
  const auto found = all_.find(reinterpret_cast<uintptr_t>(pointer));
  if (found == all_.end() || found->second.place.is_device != is_device) return false;
  const Allocation& old = found->second;
  if (is_device) {
    left_[static_cast<size_t>(old.place.device)] += old.mapped;
    ::munmap(old.place.bytes, old.mapped);
  }
  ::munmap(pointer, old.mapped);
  all_.erase(found);
  return true;
}

Place Memory::find(const void* pointer) {
  const std::lock_guard lock(mutex_);
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  auto after = all_.upper_bound(address);
  if (after != all_.begin()) {
    const auto& [begin, allocation] = *--after;
    const size_t offset = address - begin;
    if (offset < allocation.place.room) {
      Place place = allocation.place;
      place.bytes += offset;
      place.room -= offset;
      return place;
    }
  }
  Place other;
  other.bytes = static_cast<std::byte*>(const_cast<void*>(pointer));
  return other;
}

}  // namespace ciuic::fake_cuda
