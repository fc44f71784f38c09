// SPDX-License-Identifier: Apache-2.0
// staging_pool.cc: size classes of aligned chunks, from the system and back.

#include "memory/staging_pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <new>
#include <utility>

#include "base/assert.h"
#include "drivers/posix/limits.h"

namespace ciuic::memory {
namespace {

// Alignment of every chunk, and the size of the smallest: a cache line.
constexpr size_t kLine = 64;

int class_of(size_t bytes) {
  const size_t lines = std::max<size_t>((bytes + kLine - 1) / kLine, 1);
  return std::bit_width(lines - 1);
}

size_t bytes_of(int size_class) { return kLine << size_class; }

}  // namespace

StagingPool::~StagingPool() { trim(); }

std::byte* StagingPool::take(size_t bytes) {
  const int size_class = class_of(bytes);
  CIUIC_ASSERT(size_class < kClasses);
  if (Free* chunk = free_[size_class]; chunk != nullptr) {
    free_[size_class] = chunk->next;
    return reinterpret_cast<std::byte*>(chunk);
  }
  auto* chunk = static_cast<std::byte*>(std::aligned_alloc(kLine, bytes_of(size_class)));
  if (chunk == nullptr) return nullptr;
  const size_t held = held_.load(std::memory_order_relaxed) + bytes_of(size_class);
  held_.store(held, std::memory_order_relaxed);
  if (held > peak()) peak_.store(held, std::memory_order_relaxed);
  return chunk;
}

Status StagingPool::no_memory(size_t bytes) const {
  return Status(StatusCode::kResource,
                fmt::format("no memory for {} bytes of staging, beside {} that are held "
                            "(buffer_size {}): {}",
                            bytes_of(class_of(bytes)), held(), limit_, posix::memory_advice()));
}

void StagingPool::give_back(std::byte* chunk, size_t bytes) {
  CIUIC_ASSERT(chunk != nullptr);
  Free*& first = free_[class_of(bytes)];
  first = new (chunk) Free{first};
}

void StagingPool::trim() {
  for (int size_class = 0; size_class < kClasses; ++size_class) {
    size_t freed = 0;
    while (free_[size_class] != nullptr) {
      std::free(std::exchange(free_[size_class], free_[size_class]->next));
      freed += bytes_of(size_class);
    }
    held_.store(held() - freed, std::memory_order_relaxed);
  }
}

}  // namespace ciuic::memory
