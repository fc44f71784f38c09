// SPDX-License-Identifier: Apache-2.0
// shared_pool.h: memory for the caller's tensors that other processes of this host can read.
//
// It lies in regions: sealed memfds that only this process can write, and that a link passes to its
// peer (transport/shm). Small tensors share a region with others of their size. While a group uses
// the pool, what is freed is kept for later: no more than was once in use at a time, or kMostKept.
//
// Any thread may call. The memory outlives the pool's other users: each allocation keeps the pool.
// A forked child shares the memory with its parent; there nothing is given out or reused.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "base/fork.h"
#include "ciuic/status.h"
#include "drivers/posix/memfd.h"

namespace ciuic::memory {

// A region as links see it. The descriptor and the memory are there while any allocation in it is.
struct SharedRegion {
  uint32_t number = 0;  // of no other region of this process, ever
  int fd = -1;
  const std::byte* data = nullptr;
  size_t bytes = 0;

  bool has(const std::byte* first, size_t count) const {
    return first >= data && count <= bytes && first - data <= static_cast<ptrdiff_t>(bytes - count);
  }
};

class SharedPool : public std::enable_shared_from_this<SharedPool> {
 public:
  static std::shared_ptr<SharedPool> create() {
    return std::shared_ptr<SharedPool>(new SharedPool());
  }
  ~SharedPool();

  // 64-byte aligned, not initialised. kResource: not so much memory, with the number of bytes.
  // Very small ones, and those for which there is no descriptor, are ordinary memory.
  Result<std::shared_ptr<std::byte>> allocate(size_t bytes);

  // A group begins and ends to use the pool. Without any, nothing that is freed is kept.
  void add_user();
  void remove_user();

  size_t used() const { return used_.load(std::memory_order_relaxed); }  // whole regions
  size_t held() const { return held_.load(std::memory_order_relaxed); }  // and what is kept

  // Changes whenever a region comes or goes; regions() is then another list, in order of address.
  uint64_t version() const { return version_.load(std::memory_order_acquire); }
  void regions(std::vector<SharedRegion>* list) const;

  // A tensor of up to so many bytes is ordinary memory.
  static constexpr size_t kMostPrivateBytes = 16 * 1024;
  // Tensors of up to so many bytes share regions of kSlabBytes.
  static constexpr size_t kMostSlabPartBytes = 256 * 1024;
  static constexpr size_t kSlabBytes = size_t{2} << 20;
  // So much may always be kept.
  static constexpr size_t kMostKept = size_t{16} << 20;
  // Each region holds a descriptor; more tensors than this are ordinary memory.
  static constexpr size_t kMostRegions = 256;

 private:
  struct Region {
    uint32_t number = 0;
    posix::UniqueFd fd;
    posix::Mapping mapping;
    size_t part_bytes = 0;         // of each allocation in it
    std::vector<uint32_t> unused;  // parts
    size_t parts = 0;              // 0: nobody uses the region
    uint64_t freed = 0;            // when: for the oldest of those that are kept

    bool is_kept() const { return parts == 0; }
  };

  SharedPool() = default;

  Result<std::byte*> take(size_t bytes);
  void give_back(std::byte* data);
  Result<std::byte*> take_private(size_t bytes);
  void give_back_private(std::byte* data, size_t bytes);
  Result<Region*> region_of(size_t bytes);
  void begin_use(Region* region, size_t part_bytes);
  bool drop_oldest();
  void drop_beyond(size_t kept);
  void count(ptrdiff_t used, ptrdiff_t held);

  const uint32_t made_in_ = fork_generation();
  mutable std::mutex mutex_;                      // guards what follows
  std::vector<std::unique_ptr<Region>> regions_;  // by address
  uint32_t next_number_ = 1;
  uint64_t frees_ = 0;
  int users_ = 0;
  size_t most_used_ = 0;
  std::atomic<size_t> used_{0};
  std::atomic<size_t> held_{0};
  std::atomic<uint64_t> version_{0};
};

}  // namespace ciuic::memory
