// SPDX-License-Identifier: Apache-2.0
// segment.cc: makes a segment, looks at those of others, and keeps the `sleeping` word.

#include "transport/shm/segment.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "base/assert.h"
#include "security/handshake.h"

namespace ciuic::transport::shm {

static constexpr std::array<char, 8> kMagic = {'c', 'i', 'u', 'i', 'c', 's', 'h', 'm'};
static constexpr size_t kPage = 4096;

static constexpr size_t round_up(size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

static_assert(sizeof(SegmentHeader) <= kPage);
static_assert(std::atomic<uint64_t>::is_always_lock_free);

SegmentLayout SegmentLayout::for_ranks(int local_size) {
  CIUIC_ASSERT(local_size >= 2 && local_size <= kMaxLocalRanks);
  const auto ranks = static_cast<size_t>(local_size);
  SegmentLayout layout;
  layout.local_size = local_size;
  layout.rings = kPage;
  layout.feedback = layout.rings + ranks * kLines * sizeof(Line);
  layout.slots = layout.feedback + round_up(ranks * sizeof(Feedback));
  const size_t large = layout.slots + kSmallSlots * kSmallSlotBytes;
  const size_t fit = (kMaxSegmentBytes - large) / kLargeSlotBytes;
  layout.large_slots = static_cast<int>(std::min<size_t>(fit, kMaxLargeSlots));
  layout.bytes = large + static_cast<size_t>(layout.large_slots) * kLargeSlotBytes;
  CIUIC_ASSERT(layout.large_slots >= 2 && layout.bytes <= kMaxSegmentBytes);
  return layout;
}

// Begins the lifetime of the atomics, on memory that is zero.
static void construct(const SegmentView& view) {
  new (&view.header()) SegmentHeader{};
  for (int rank = 0; rank < view.layout().local_size; ++rank) {
    for (uint32_t line = 0; line < kLines; ++line) new (view.ring(rank) + line) Line{};
    new (&view.feedback(rank)) Feedback{};
  }
}

Segment::Segment(const SegmentOwner& owner, posix::UniqueFd fd, posix::Mapping mapping,
                 const SegmentLayout& layout, const Nonce& nonce,
                 std::shared_ptr<memory::SharedPool> pool)
    : owner_(owner),
      fd_(std::move(fd)),
      mapping_(std::move(mapping)),
      view_(mapping_.data(), layout),
      slots_(layout.slot_count()),
      regions_(std::move(pool)),
      nonce_(nonce) {
  construct(view_);
  SegmentHeader& header = view_.header();
  header.magic = kMagic;
  header.version = kSegmentVersion;
  header.epoch = owner_.epoch;
  header.group = owner_.group;
  header.rank = owner_.rank;
  header.local_size = layout.local_size;
  header.bytes = static_cast<uint32_t>(layout.bytes);
  header.nonce = nonce_;
  std::copy(owner_.ranks.begin(), owner_.ranks.end(), header.ranks.begin());
}

Result<std::shared_ptr<Segment>> Segment::create(const SegmentOwner& owner,
                                                 std::shared_ptr<memory::SharedPool> pool) {
  const size_t ranks = owner.ranks.size();
  CIUIC_ASSERT(std::is_sorted(owner.ranks.begin(), owner.ranks.end()));
  if (ranks < 2 || ranks > kMaxLocalRanks) {
    return Status(
        StatusCode::kInvalidArgument,
        fmt::format("{} ranks on one host; shared memory takes 2 to {}", ranks, kMaxLocalRanks));
  }
  Result<std::string> random = security::make_secret();
  if (!random.ok()) return random.status();
  Nonce nonce;
  CIUIC_ASSERT(random->size() >= sizeof nonce);
  std::memcpy(nonce.data(), random->data(), sizeof nonce);

  const SegmentLayout layout = SegmentLayout::for_ranks(static_cast<int>(ranks));
  Result<posix::UniqueFd> fd = posix::create_memfd("ciuic", layout.bytes);
  if (!fd.ok()) return fd.status();
  Result<posix::Mapping> mapping = posix::Mapping::map(fd->get(), layout.bytes, true);
  if (!mapping.ok()) return mapping.status();
  posix::seal_future_writes(fd->get());
  return std::shared_ptr<Segment>(
      new Segment(owner, std::move(*fd), std::move(*mapping), layout, nonce, std::move(pool)));
}

int Segment::index_of(int rank) const {
  const auto at = std::lower_bound(owner_.ranks.begin(), owner_.ranks.end(), rank);
  if (at == owner_.ranks.end() || *at != rank) return -1;
  return static_cast<int>(at - owner_.ranks.begin());
}

// Peers write a line or a release, then look at this word; this side writes the word, then looks at
// lines and releases. All four are sequentially consistent, so at least one side sees the other's.
void Segment::set_sleeping(bool sleeping) {
  if (!sleeping) wants_space_ = false;
  const uint32_t word = sleeping ? kSleeps | (wants_space_ ? kWantsSpace : 0) : 0;
  view_.header().sleeping.store(word, std::memory_order_seq_cst);
}

bool Segment::want_space() {
  if (wants_space_) return false;
  wants_space_ = true;
  std::atomic<uint32_t>& sleeping = view_.header().sleeping;
  if (sleeping.load(std::memory_order_relaxed) != 0) {
    sleeping.store(kSleeps | kWantsSpace, std::memory_order_seq_cst);
  }
  return true;
}

Result<SegmentView> check_segment(const posix::Mapping& mapping, const SegmentOwner& mine,
                                  int rank) {
  const SegmentLayout layout = SegmentLayout::for_ranks(static_cast<int>(mine.ranks.size()));
  CIUIC_ASSERT(mapping.bytes() == layout.bytes);
  const SegmentView view(mapping.data(), layout);
  const SegmentHeader& header = view.header();
  const auto differs = [&](const char* what, int64_t found, int64_t expected) {
    return Status(StatusCode::kMismatch, fmt::format("the segment of rank {} has {} {}, not {}",
                                                     rank, what, found, expected));
  };
  if (header.magic != kMagic) {
    return Status(StatusCode::kMismatch, fmt::format("rank {} passed no segment", rank));
  }
  if (header.version != kSegmentVersion) return differs("version", header.version, kSegmentVersion);
  if (header.epoch != mine.epoch) return differs("epoch", header.epoch, mine.epoch);
  if (header.group != mine.group) return differs("group", header.group, mine.group);
  if (header.rank != rank) return differs("rank", header.rank, rank);
  if (header.local_size != layout.local_size) {
    return differs("local ranks:", header.local_size, layout.local_size);
  }
  if (!std::equal(mine.ranks.begin(), mine.ranks.end(), header.ranks.begin())) {
    return Status(StatusCode::kMismatch,
                  fmt::format("rank {} sees other ranks on this host", rank));
  }
  return view;
}

}  // namespace ciuic::transport::shm
