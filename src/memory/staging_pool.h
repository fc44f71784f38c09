// SPDX-License-Identifier: Apache-2.0
// staging_pool.h: chunks of memory for what arrives before it can be placed, and for scratch.
//
// Freed chunks are kept for reuse by size class (powers of two from 64 bytes), so that a warm
// engine allocates nothing. One thread at a time; held() and peak() from any.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>

#include "ciuic/status.h"

namespace ciuic::memory {

class StagingPool {
 public:
  // `limit` bytes is what windows are cut to; take() itself goes over it rather than fail, since
  // what was promised to a peer must find room.
  explicit StagingPool(size_t limit) : limit_(limit) {}
  ~StagingPool();
  StagingPool(const StagingPool&) = delete;
  StagingPool& operator=(const StagingPool&) = delete;

  // 64-byte aligned, at least `bytes` long. Null only where the system has no memory left; then
  // no_memory() is the error, kResource with the numbers.
  std::byte* take(size_t bytes);
  Status no_memory(size_t bytes) const;

  void give_back(std::byte* chunk, size_t bytes);  // the size that was asked for; takes no memory

  // Frees the chunks that nobody uses.
  void trim();

  size_t limit() const { return limit_; }
  size_t held() const { return held_.load(std::memory_order_relaxed); }  // used, and kept free
  size_t peak() const { return peak_.load(std::memory_order_relaxed); }

 private:
  static constexpr int kClasses = 64;

  // At the beginning of each free chunk.
  struct Free {
    Free* next;
  };

  size_t limit_;
  std::atomic<size_t> held_{0};
  std::atomic<size_t> peak_{0};
  std::array<Free*, kClasses> free_{};
};

}  // namespace ciuic::memory
