// SPDX-License-Identifier: Apache-2.0
// shared_pool_test.cc: regions that others can read, their reuse, and that all of them come back.

#include "memory/shared_pool.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <string>
#include <thread>

namespace ciuic::memory {
namespace {

using Tensor = std::shared_ptr<std::byte>;

// A pool that a group uses.
class SharedPoolTest : public testing::Test {
 protected:
  SharedPoolTest() { pool_->add_user(); }

  Tensor allocate(size_t bytes) { return std::move(pool_->allocate(bytes).value()); }

  // The region that a tensor lies in.
  SharedRegion region_of(const Tensor& tensor, size_t bytes) {
    std::vector<SharedRegion> regions;
    pool_->regions(&regions);
    for (const SharedRegion& region : regions) {
      if (region.has(tensor.get(), bytes)) return region;
    }
    return {};
  }

  std::shared_ptr<SharedPool> pool_ = SharedPool::create();
};

size_t descriptors() {
  size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    ++count;
  }
  return count;
}

size_t mappings() {
  std::ifstream maps("/proc/self/maps");
  size_t count = 0;
  for (std::string line; std::getline(maps, line);) {
    count += line.find("ciuic-tensors") != std::string::npos;
  }
  return count;
}

TEST_F(SharedPoolTest, TensorsAreAlignedAndLongEnough) {
  std::vector<std::pair<Tensor, size_t>> all;
  for (const size_t bytes :
       {size_t{0}, size_t{1}, size_t{63}, size_t{4096}, SharedPool::kMostPrivateBytes,
        SharedPool::kMostPrivateBytes + 1, size_t{100'000}, SharedPool::kMostSlabPartBytes,
        SharedPool::kMostSlabPartBytes + 1, SharedPool::kSlabBytes, size_t{5'000'001}}) {
    all.emplace_back(allocate(bytes), bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(all.back().first.get()) % 64, 0u) << bytes;
    std::memset(all.back().first.get(), static_cast<int>(all.size()), bytes);
  }
  for (size_t i = 0; i < all.size(); ++i) {
    for (size_t at = 0; at < all[i].second; at += 997) {
      ASSERT_EQ(all[i].first.get()[at], std::byte(i + 1)) << all[i].second;
    }
  }
}

TEST_F(SharedPoolTest, OthersCanReadARegionAndNotWriteIt) {
  const Tensor tensor = allocate(1 << 20);
  const SharedRegion region = region_of(tensor, 1 << 20);
  ASSERT_NE(region.number, 0u);
  EXPECT_TRUE(posix::check_sealed(region.fd, region.bytes).ok());
  EXPECT_FALSE(posix::Mapping::map(region.fd, region.bytes, true).ok());
  const auto mapping = posix::Mapping::map(region.fd, region.bytes, false);
  ASSERT_TRUE(mapping.ok());
  std::memset(tensor.get(), 0x5a, 1 << 20);
  const auto offset = static_cast<size_t>(tensor.get() - region.data);
  EXPECT_EQ(mapping->data()[offset + (1 << 20) - 1], std::byte{0x5a});
}

TEST_F(SharedPoolTest, ARegionHasWhatLiesWhollyInIt) {
  alignas(64) std::byte memory[128];
  const SharedRegion region{.number = 1, .fd = -1, .data = memory + 32, .bytes = 64};
  EXPECT_TRUE(region.has(memory + 32, 64));
  EXPECT_TRUE(region.has(memory + 95, 1));
  EXPECT_TRUE(region.has(memory + 96, 0));
  EXPECT_FALSE(region.has(memory + 95, 2));
  EXPECT_FALSE(region.has(memory + 31, 2));
  EXPECT_FALSE(region.has(memory + 32, 65));
  EXPECT_FALSE(region.has(memory + 97, 0));
}

TEST_F(SharedPoolTest, VerySmallOnesAreOrdinaryMemory) {
  const Tensor small = allocate(SharedPool::kMostPrivateBytes);
  EXPECT_EQ(region_of(small, 1).number, 0u);
  EXPECT_EQ(pool_->version(), 0u);
  EXPECT_EQ(pool_->held(), SharedPool::kMostPrivateBytes);
}

TEST_F(SharedPoolTest, SmallOnesOfASizeShareARegion) {
  std::vector<Tensor> parts;
  for (int i = 0; i < 32; ++i) parts.push_back(allocate(60'000));
  EXPECT_EQ(pool_->held(), SharedPool::kSlabBytes);
  EXPECT_EQ(region_of(parts[0], 60'000).number, region_of(parts[31], 60'000).number);
  parts.push_back(allocate(60'000));
  EXPECT_EQ(pool_->held(), 2 * SharedPool::kSlabBytes);
}

TEST_F(SharedPoolTest, ALoopHoldsNoMoreThanItsFirstRound) {
  const size_t before = descriptors();
  uint64_t version = 0;
  for (int round = 0; round < 50; ++round) {
    const Tensor large = allocate(3 << 20);
    const Tensor larger = allocate(5 << 20);
    const Tensor part = allocate(100'000);
    if (round == 0) version = pool_->version();
  }
  EXPECT_EQ(pool_->version(), version);  // regions are found again, so peers keep their mappings
  EXPECT_EQ(pool_->used(), 0u);
  EXPECT_EQ(pool_->held(), (8u << 20) + SharedPool::kSlabBytes);
  EXPECT_EQ(descriptors(), before + 3);
}

TEST_F(SharedPoolTest, SizesThatChangeKeepNoMoreThanWasOnceInUse) {
  size_t most = SharedPool::kMostKept;
  for (size_t bytes = 1 << 20; bytes < 64 << 20; bytes += bytes / 5) {
    const Tensor tensor = allocate(bytes);
    most = std::max(most, pool_->used());
    EXPECT_LE(pool_->held() - pool_->used(), most);
  }
  EXPECT_LE(pool_->held(), most);
  EXPECT_GT(pool_->held(), SharedPool::kMostKept);
}

TEST_F(SharedPoolTest, AFewSizesInTurnAreFoundAgain) {
  uint64_t version = 0;
  for (int round = 0; round < 30; ++round) {
    const Tensor tensor = allocate((size_t{1} << 20) * (1 + static_cast<size_t>(round) % 3));
    if (round == 2) version = pool_->version();
  }
  EXPECT_EQ(pool_->version(), version);
}

TEST_F(SharedPoolTest, EverythingComesBack) {
  const size_t fds = descriptors();
  std::vector<Tensor> all;
  for (int i = 1; i < 40; ++i) all.push_back(allocate(static_cast<size_t>(i) * 50'000));
  EXPECT_GT(descriptors(), fds);
  EXPECT_GT(mappings(), 0u);
  pool_->remove_user();
  EXPECT_EQ(pool_->held(), pool_->used());
  while (!all.empty()) {
    all.pop_back();
    EXPECT_EQ(pool_->held(), pool_->used());  // without a user nothing is kept
  }
  EXPECT_EQ(pool_->held(), 0u);
  EXPECT_EQ(descriptors(), fds);
  EXPECT_EQ(mappings(), 0u);
}

TEST_F(SharedPoolTest, MemoryOutlivesThePool) {
  Tensor tensor = allocate(1 << 20);
  const std::weak_ptr<SharedPool> pool = pool_;
  pool_.reset();
  std::memset(tensor.get(), 1, 1 << 20);
  EXPECT_FALSE(pool.expired());
  tensor.reset();
  EXPECT_TRUE(pool.expired());
  EXPECT_EQ(mappings(), 0u);
}

TEST_F(SharedPoolTest, TooManyRegionsAreOrdinaryMemory) {
  std::vector<Tensor> all;
  for (size_t i = 0; i < SharedPool::kMostRegions; ++i) all.push_back(allocate(300'000));
  EXPECT_NE(region_of(all.back(), 300'000).number, 0u);
  const Tensor one_more = allocate(300'000);
  EXPECT_EQ(region_of(one_more, 300'000).number, 0u);
  std::memset(one_more.get(), 1, 300'000);
  all.pop_back();
  const Tensor again = allocate(300'000);
  EXPECT_NE(region_of(again, 300'000).number, 0u);
}

// In a child whose files are small: an attempt to really get so much would end early.
TEST_F(SharedPoolTest, SaysHowMuchMemoryIsMissing) {
  const pid_t child = fork();
  if (child != 0) {
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(WEXITSTATUS(status), 0);
    return;
  }
  const rlimit limit{1 << 20, 1 << 20};
  if (setrlimit(RLIMIT_FSIZE, &limit) != 0) _exit(2);
  const auto pool = SharedPool::create();
  for (const size_t bytes : {size_t{1} << 45, ~size_t{0}}) {
    const Status refused = pool->allocate(bytes).status();
    if (refused.code() != StatusCode::kResource) _exit(3);
    if (refused.message().find(std::to_string(bytes)) == std::string::npos) _exit(4);
  }
  _exit(pool->held() == 0 ? 0 : 5);
}

// A child's frees must not give to its own use what is the parent's.
TEST_F(SharedPoolTest, AForkedChildOnlyLetsGo) {
  Tensor tensor = allocate(1 << 20);
  Tensor small = allocate(100);
  std::memset(tensor.get(), 7, 1 << 20);
  const pid_t child = fork();
  if (child == 0) {
    const bool reads = tensor.get()[1000] == std::byte{7};
    const bool refuses = pool_->allocate(1 << 20).status().code() == StatusCode::kClosed;
    const size_t held = pool_->held();
    std::byte* data = tensor.get();
    tensor.reset();
    small.reset();
    const bool stays = pool_->held() == held && data[1000] == std::byte{7};
    _exit(reads && refuses && stays ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(tensor.get()[1000], std::byte{7});
}

// No byte belongs to two tensors at once, and the account adds up, whatever the order.
TEST_F(SharedPoolTest, RandomUse) {
  std::mt19937 random(11);
  struct Used {
    Tensor tensor;
    size_t bytes;
  };
  std::vector<Used> used;
  std::map<std::byte*, size_t> taken;
  for (int i = 0; i < 4000; ++i) {
    if (used.empty() || (used.size() < 60 && random() % 2 == 0)) {
      const size_t bytes = size_t{1} << (random() % 21);
      Tensor tensor = allocate(bytes);
      const auto next = taken.lower_bound(tensor.get());
      if (next != taken.end()) {
        ASSERT_LE(tensor.get() + bytes, next->first);
      }
      if (next != taken.begin()) {
        ASSERT_LE(std::prev(next)->first + std::prev(next)->second, tensor.get());
      }
      taken[tensor.get()] = bytes;
      used.push_back({std::move(tensor), bytes});
    } else {
      std::swap(used[random() % used.size()], used.back());
      taken.erase(used.back().tensor.get());
      used.pop_back();
    }
    ASSERT_LE(pool_->used(), pool_->held());
  }
  used.clear();
  EXPECT_EQ(pool_->used(), 0u);
  pool_->remove_user();
  EXPECT_EQ(pool_->held(), 0u);
}

// Run under TSan, too.
TEST_F(SharedPoolTest, ThreadsMayAllocateAndFree) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([this, t] {
      std::mt19937 random(static_cast<uint32_t>(t));
      std::vector<SharedRegion> regions;
      for (int i = 0; i < 200; ++i) {
        const size_t bytes = 10'000 + random() % 600'000;
        const Tensor tensor = allocate(bytes);
        tensor.get()[bytes - 1] = std::byte(t);
        pool_->regions(&regions);
        EXPECT_EQ(tensor.get()[bytes - 1], std::byte(t));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(pool_->used(), 0u);
}

}  // namespace
}  // namespace ciuic::memory
