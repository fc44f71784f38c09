// SPDX-License-Identifier: Apache-2.0
// staging_pool.cc: size classes of aligned chunks, from the system and back.

#include "memory/staging_pool.h"

#include <algorithm>
#include <bit>
#include <cstdlib>

#include "base/assert.h"

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
  std::vector<std::byte*>& chunks = free_[size_class];
  if (!chunks.empty()) {
    std::byte* chunk = chunks.back();
    chunks.pop_back();
    return chunk;
  }
  auto* chunk = static_cast<std::byte*>(std::aligned_alloc(kLine, bytes_of(size_class)));
  if (chunk == nullptr) return nullptr;
  const size_t held = held_.load(std::memory_order_relaxed) + bytes_of(size_class);
  held_.store(held, std::memory_order_relaxed);
  if (held > peak()) peak_.store(held, std::memory_order_relaxed);
  return chunk;
}

void StagingPool::give_back(std::byte* chunk, size_t bytes) {
  CIUIC_ASSERT(chunk != nullptr);
  free_[class_of(bytes)].push_back(chunk);
}

void StagingPool::trim() {
  for (int size_class = 0; size_class < kClasses; ++size_class) {
    std::vector<std::byte*>& chunks = free_[size_class];
    for (std::byte* chunk : chunks) std::free(chunk);
    held_.store(held() - chunks.size() * bytes_of(size_class), std::memory_order_relaxed);
    chunks.clear();
  }
}

}  // namespace ciuic::memory
