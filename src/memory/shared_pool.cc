// SPDX-License-Identifier: Apache-2.0
// shared_pool.cc: regions come, are cut into parts, are kept for reuse, and go.

#include "memory/shared_pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdlib>

#include "base/assert.h"
#include "drivers/posix/limits.h"

namespace ciuic::memory {
namespace {

constexpr const char* kName = "ciuic-tensors";  // in /proc/*/maps
constexpr size_t kPage = 4096;
constexpr size_t kLine = 64;

constexpr size_t round_up(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

// Sizes that differ by little are alike, so that one can take the other's place: an eighth of a
// power of two apart, or a quarter within slabs.
size_t class_bytes(size_t bytes) {
  const size_t steps = bytes <= SharedPool::kMostSlabPartBytes ? 4 : 8;
  return round_up(bytes, std::max(kPage, std::bit_floor(bytes) / steps));
}

// Nobody has so much; and sums of it stay far from where size_t ends.
constexpr size_t kMostBytes = size_t{1} << 46;

}  // namespace

SharedPool::~SharedPool() = default;  // no allocation is left: each holds the pool

Result<std::shared_ptr<std::byte>> SharedPool::allocate(size_t bytes) {
  if (made_in_ != fork_generation()) {
    return Status(StatusCode::kClosed, "this process was forked from the one whose memory it is");
  }
  if (bytes > kMostBytes) {
    return Status(StatusCode::kResource,
                  fmt::format("no memory for {} bytes: {}", bytes, posix::memory_advice()));
  }
  if (bytes > kMostPrivateBytes) {
    const std::lock_guard lock(mutex_);
    Result<std::byte*> data = take(bytes);
    if (!data.ok()) return data.status();
    if (*data != nullptr) {
      return std::shared_ptr<std::byte>(
          *data, [pool = shared_from_this()](std::byte* each) { pool->give_back(each); });
    }
  }
  Result<std::byte*> data = take_private(bytes);
  if (!data.ok()) return data.status();
  return std::shared_ptr<std::byte>(*data, [pool = shared_from_this(), bytes](std::byte* each) {
    pool->give_back_private(each, bytes);
  });
}

void SharedPool::count(ptrdiff_t used, ptrdiff_t held) {
  used_.store(this->used() + static_cast<size_t>(used), std::memory_order_relaxed);
  held_.store(this->held() + static_cast<size_t>(held), std::memory_order_relaxed);
  most_used_ = std::max(most_used_, this->used());
}

Result<std::byte*> SharedPool::take_private(size_t bytes) {
  const size_t whole = round_up(std::max<size_t>(bytes, 1), kLine);
  auto* data = static_cast<std::byte*>(std::aligned_alloc(kLine, whole));
  if (data == nullptr) {
    return Status(StatusCode::kResource,
                  fmt::format("no memory for {} bytes: {}", bytes, posix::memory_advice()));
  }
  const std::lock_guard lock(mutex_);
  count(static_cast<ptrdiff_t>(whole), static_cast<ptrdiff_t>(whole));
  return data;
}

void SharedPool::give_back_private(std::byte* data, size_t bytes) {
  std::free(data);
  if (made_in_ != fork_generation()) return;
  const auto whole = static_cast<ptrdiff_t>(round_up(std::max<size_t>(bytes, 1), kLine));
  const std::lock_guard lock(mutex_);
  count(-whole, -whole);
}

// Null: there is no descriptor for one more region.
Result<std::byte*> SharedPool::take(size_t bytes) {
  const size_t part_bytes = class_bytes(bytes);
  const bool is_part = part_bytes <= kMostSlabPartBytes;
  Region* found = nullptr;
  for (const auto& region : regions_) {
    if (is_part && !region->unused.empty() && region->part_bytes == part_bytes) {
      found = region.get();
      break;
    }
  }
  if (found == nullptr) {
    Result<Region*> region = region_of(is_part ? kSlabBytes : part_bytes);
    if (!region.ok()) return region.status();
    if (*region == nullptr) return nullptr;
    found = *region;
    begin_use(found, part_bytes);
  }
  const size_t part = found->unused.back();
  found->unused.pop_back();
  ++found->parts;
  return found->mapping.data() + part * part_bytes;
}

// One that is kept, or a new one.
Result<SharedPool::Region*> SharedPool::region_of(size_t bytes) {
  for (const auto& region : regions_) {
    if (region->is_kept() && region->mapping.bytes() == bytes) return region.get();
  }
  while (regions_.size() >= kMostRegions) {
    if (!drop_oldest()) return nullptr;
  }
  auto region = std::make_unique<Region>();
  Result<posix::UniqueFd> fd = posix::create_memfd(kName, bytes);
  while (!fd.ok() && drop_oldest()) fd = posix::create_memfd(kName, bytes);
  if (!fd.ok()) {
    // Without memory this is the caller's error; without a descriptor other memory does.
    const bool has_no_memory =
        fd.status().code() == StatusCode::kResource && posix::room_for_descriptors(1) > 0;
    if (has_no_memory) return fd.status();
    return nullptr;
  }
  region->fd = std::move(*fd);
  Result<posix::Mapping> mapping = posix::Mapping::map(region->fd.get(), bytes, true);
  if (!mapping.ok()) return mapping.status();
  posix::seal_future_writes(region->fd.get());
  region->mapping = std::move(*mapping);
  region->number = next_number_++;
  Region* made = region.get();
  const auto after = [](const std::byte* data, const std::unique_ptr<Region>& other) {
    return data < other->mapping.data();
  };
  regions_.insert(std::upper_bound(regions_.begin(), regions_.end(), made->mapping.data(), after),
                  std::move(region));
  count(0, static_cast<ptrdiff_t>(bytes));
  version_.fetch_add(1, std::memory_order_release);
  return made;
}

void SharedPool::begin_use(Region* region, size_t part_bytes) {
  const size_t bytes = region->mapping.bytes();
  region->part_bytes = part_bytes;
  region->unused.clear();
  for (size_t part = bytes / part_bytes; part > 0; --part) {
    region->unused.push_back(static_cast<uint32_t>(part - 1));
  }
  count(static_cast<ptrdiff_t>(bytes), 0);
}

void SharedPool::give_back(std::byte* data) {
  if (made_in_ != fork_generation()) return;  // the parent's, which still uses it
  const std::lock_guard lock(mutex_);
  const auto after = [](const std::byte* each, const std::unique_ptr<Region>& region) {
    return each < region->mapping.data();
  };
  auto found = std::upper_bound(regions_.begin(), regions_.end(), data, after);
  CIUIC_ASSERT(found != regions_.begin());
  Region& region = **--found;
  const auto offset = static_cast<size_t>(data - region.mapping.data());
  region.unused.push_back(static_cast<uint32_t>(offset / region.part_bytes));
  if (--region.parts > 0) return;
  region.unused.clear();
  region.freed = ++frees_;
  count(-static_cast<ptrdiff_t>(region.mapping.bytes()), 0);
  drop_beyond(users_ > 0 ? std::max(most_used_, kMostKept) : 0);
}

// Frees kept regions, the oldest first, until no more than `kept` bytes of them are left.
void SharedPool::drop_beyond(size_t kept) {
  while (held() - used() > kept && drop_oldest()) {
  }
}

bool SharedPool::drop_oldest() {
  auto oldest = regions_.end();
  for (auto region = regions_.begin(); region != regions_.end(); ++region) {
    if (!(*region)->is_kept()) continue;
    if (oldest == regions_.end() || (*region)->freed < (*oldest)->freed) oldest = region;
  }
  if (oldest == regions_.end()) return false;
  count(0, -static_cast<ptrdiff_t>((*oldest)->mapping.bytes()));
  regions_.erase(oldest);
  version_.fetch_add(1, std::memory_order_release);
  return true;
}

void SharedPool::add_user() {
  const std::lock_guard lock(mutex_);
  ++users_;
}

void SharedPool::remove_user() {
  const std::lock_guard lock(mutex_);
  CIUIC_ASSERT(users_ > 0);
  if (--users_ == 0) drop_beyond(0);
}

void SharedPool::regions(std::vector<SharedRegion>* list) const {
  const std::lock_guard lock(mutex_);
  list->clear();
  for (const auto& region : regions_) {
    list->push_back(
        {region->number, region->fd.get(), region->mapping.data(), region->mapping.bytes()});
  }
}

}  // namespace ciuic::memory
