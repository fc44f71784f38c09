// SPDX-License-Identifier: Apache-2.0
// staging_pool_test.cc: alignment, reuse, and an account that adds up.

#include "memory/staging_pool.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace ciuic::memory {
namespace {

bool is_aligned(const std::byte* chunk) { return reinterpret_cast<uintptr_t>(chunk) % 64 == 0; }

TEST(StagingPool, ChunksAreAlignedAndLongEnough) {
  StagingPool pool(1 << 20);
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{63}, size_t{64}, size_t{65}, size_t{4096},
                             size_t{4097}, size_t{65536}, size_t{1} << 22}) {
    std::byte* chunk = pool.take(bytes);
    ASSERT_NE(chunk, nullptr);
    EXPECT_TRUE(is_aligned(chunk)) << bytes;
    std::memset(chunk, 0x5a, bytes);  // under ASan: the bytes are really there
    pool.give_back(chunk, bytes);
  }
}

TEST(StagingPool, HeldCountsWholeSizeClasses) {
  StagingPool pool(1 << 20);
  EXPECT_EQ(pool.held(), 0u);
  std::byte* one = pool.take(1);
  EXPECT_EQ(pool.held(), 64u);
  std::byte* two = pool.take(65);
  EXPECT_EQ(pool.held(), 64u + 128u);
  pool.give_back(one, 1);
  pool.give_back(two, 65);
  EXPECT_EQ(pool.held(), 64u + 128u);  // kept free
  pool.trim();
  EXPECT_EQ(pool.held(), 0u);
  EXPECT_EQ(pool.peak(), 64u + 128u);
}

TEST(StagingPool, ReusesWithinAClassOnly) {
  StagingPool pool(1 << 20);
  std::byte* chunk = pool.take(1000);
  pool.give_back(chunk, 1000);
  EXPECT_EQ(pool.take(1024), chunk);
  std::byte* other = pool.take(512);
  EXPECT_NE(other, chunk);
  EXPECT_EQ(pool.held(), 1024u + 512u);
  pool.give_back(chunk, 1024);
  pool.give_back(other, 512);
}

TEST(StagingPool, AWarmPoolHoldsNoMore) {
  StagingPool pool(1 << 20);
  for (int round = 0; round < 3; ++round) {
    std::vector<std::byte*> chunks;
    for (int i = 0; i < 10; ++i) chunks.push_back(pool.take(5000));
    for (std::byte* chunk : chunks) pool.give_back(chunk, 5000);
    EXPECT_EQ(pool.held(), 10u * 8192u);
  }
  EXPECT_EQ(pool.peak(), pool.held());
}

TEST(StagingPool, GoesOverTheLimitRatherThanFail) {
  StagingPool pool(128);
  std::byte* first = pool.take(128);
  std::byte* second = pool.take(128);
  EXPECT_NE(second, nullptr);
  EXPECT_GT(pool.held(), pool.limit());
  pool.give_back(first, 128);
  pool.give_back(second, 128);
}

TEST(StagingPool, TrimLeavesWhatIsInUse) {
  StagingPool pool(1 << 20);
  std::byte* used = pool.take(100);
  pool.give_back(pool.take(300), 300);
  pool.trim();
  EXPECT_EQ(pool.held(), 128u);
  std::memset(used, 1, 100);
  pool.give_back(used, 100);
}

TEST(StagingPool, SaysHowMuchMemoryIsMissing) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the sanitizer refuses the size by itself";
#endif
  StagingPool pool(1 << 20);
  std::byte* held = pool.take(1000);
  const size_t too_much = size_t{1} << 60;
  EXPECT_EQ(pool.take(too_much), nullptr);
  EXPECT_EQ(pool.held(), 1024u);
  const Status status = pool.no_memory(too_much);
  EXPECT_EQ(status.code(), StatusCode::kResource);
  for (const char* text : {"1152921504606846976 bytes", "beside 1024", "buffer_size 1048576"}) {
    EXPECT_NE(status.message().find(text), std::string::npos) << status.message();
  }
  pool.give_back(held, 1000);
}

// No chunk is handed out twice at once, and the account follows, whatever the order.
TEST(StagingPool, RandomUse) {
  std::mt19937 random(7);
  StagingPool pool(1 << 20);
  std::vector<std::pair<std::byte*, size_t>> used;
  std::set<std::byte*> out;
  for (int i = 0; i < 20000; ++i) {
    if (used.empty() || random() % 2 == 0) {
      const size_t bytes = random() % 9000;
      std::byte* chunk = pool.take(bytes);
      ASSERT_TRUE(out.insert(chunk).second);
      used.emplace_back(chunk, bytes);
    } else {
      std::swap(used[random() % used.size()], used.back());
      pool.give_back(used.back().first, used.back().second);
      out.erase(used.back().first);
      used.pop_back();
    }
    if (random() % 1000 == 0) pool.trim();
  }
  for (const auto& [chunk, bytes] : used) pool.give_back(chunk, bytes);
  pool.trim();
  EXPECT_EQ(pool.held(), 0u);
}

}  // namespace
}  // namespace ciuic::memory
