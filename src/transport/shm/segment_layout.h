// SPDX-License-Identifier: Apache-2.0
// segment_layout.h: what stands where in a rank's shared-memory segment.
//
// A segment is written by its owner alone; every other rank of the host maps it read-only. It holds
//   header    who it belongs to, the nonce that proves a mapping, the owner's `sleeping` word
//   rings     for each local rank, 64 lines of 64 bytes that the owner writes and that rank reads
//   feedback  for each local rank, what the owner as a reader of that rank's segment has consumed
//             and released; and which of that rank's tensors it has mapped
//   slots     payloads that do not fit into a line; one may be named in the lines of many readers
// Places are found by the rank's index in the ascending list of the host's ranks.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace ciuic::transport::shm {

inline constexpr int kMaxLocalRanks = 64;
inline constexpr size_t kMaxSegmentBytes = 512 * 1024;
inline constexpr uint32_t kLines = 64;  // a ring's; a power of two
inline constexpr size_t kInlineBytes = 32;
inline constexpr int kSmallSlots = 16;
inline constexpr size_t kSmallSlotBytes = 4 * 1024;
inline constexpr int kMaxLargeSlots = 7;
inline constexpr size_t kLargeSlotBytes = 64 * 1024;
inline constexpr int kMaxSlots = kSmallSlots + kMaxLargeSlots;  // the small ones come first
inline constexpr int kPlaces = 64;         // for regions, of a writer at a reader
inline constexpr uint64_t kMostLent = 64;  // payloads, likewise
inline constexpr uint32_t kSegmentVersion = 2;

using Nonce = std::array<uint64_t, 2>;

struct SegmentHeader {
  std::array<char, 8> magic;
  uint32_t version;
  uint32_t epoch;
  uint32_t group;
  int32_t rank;
  int32_t local_size;
  uint32_t bytes;
  Nonce nonce;
  std::array<int32_t, kMaxLocalRanks> ranks;  // ascending

  // Bits of Sleeping, below. On a line of its own: every writer looks at it after every message.
  alignas(64) std::atomic<uint32_t> sleeping;

  // Not 0: the owner has left the group while others may read its tensors, which it may now write.
  alignas(64) std::atomic<uint32_t> withdrawn;
};

// Bits of the `sleeping` word.
inline constexpr uint32_t kSleeps = 1;      // a new line must ring the owner's doorbell
inline constexpr uint32_t kWantsSpace = 2;  // so must consumed lines and released slots

// One message. What the segment says already (epoch, group) is left out. Filled line by line; the
// flag is written last, so a reader that sees its number sees all of the line, and the slot.
struct alignas(64) Line {
  struct SlotReference {
    uint64_t generation;  // of the slot's content
    uint32_t slot;
    uint32_t payload_bytes;
  };
  struct LentReference {  // lending.h
    uint64_t offset;      // in the region
    uint32_t place;       // of the region
    uint32_t payload_bytes;
  };

  uint32_t sequence;
  uint32_t chunk;
  uint32_t acked;
  uint16_t step;
  uint8_t type;
  uint8_t lane;
  uint64_t bytes;  // low 56 bits: the message's; high 8: the payload's, or kInSlot or kLent
  union {
    std::array<std::byte, kInlineBytes> inlined;
    SlotReference reference;
    LentReference lent;
  } payload;
  std::atomic<uint64_t> flag;  // low half: the line's number, from 1 on; high: the fingerprint
};
static_assert(sizeof(Line) == 64);
inline constexpr uint64_t kInSlot = 0xff;
inline constexpr uint64_t kLent = 0xfe;
inline constexpr uint8_t kLookAtSocket = 0x80;  // beside the line's type: a notice is there
inline constexpr int kPayloadShift = 56;
inline constexpr uint64_t kMessageMask = (uint64_t{1} << kPayloadShift) - 1;

// What a reader tells a writer. The words that are looked at together share a cache line.
struct alignas(64) Feedback {
  std::atomic<uint64_t> consumed;                           // lines, counted from the first
  std::array<std::atomic<uint64_t>, kMaxLargeSlots> large;  // generation that was released
  std::array<std::atomic<uint64_t>, kSmallSlots> small;

  // Of the writer's tensors (lending.h).
  std::atomic<uint64_t> returned;  // payloads that were lent, counted from the first
  std::atomic<uint64_t> mapped;    // bits, by place
  std::atomic<uint64_t> refused;   // the same: the region there cannot be mapped

  std::atomic<uint64_t>& released(int slot) {
    const auto index = static_cast<size_t>(slot);
    return slot < kSmallSlots ? small[index] : large[index - kSmallSlots];
  }
  const std::atomic<uint64_t>& released(int slot) const {
    const auto index = static_cast<size_t>(slot);
    return slot < kSmallSlots ? small[index] : large[index - kSmallSlots];
  }
};
static_assert(sizeof(Feedback) == 256);

// Sizes and places, for a number of ranks on the host; the same on all of them.
struct SegmentLayout {
  static SegmentLayout for_ranks(int local_size);

  int local_size = 0;
  int large_slots = 0;  // as many as fit, 2 at least
  size_t rings = 0;     // offsets in bytes
  size_t feedback = 0;
  size_t slots = 0;
  size_t bytes = 0;

  int slot_count() const { return kSmallSlots + large_slots; }
};

constexpr size_t slot_bytes(int slot) {
  return slot < kSmallSlots ? kSmallSlotBytes : kLargeSlotBytes;
}

// A mapped segment. Owns nothing.
class SegmentView {
 public:
  SegmentView() = default;
  SegmentView(std::byte* base, const SegmentLayout& layout) : base_(base), layout_(layout) {}

  const SegmentLayout& layout() const { return layout_; }
  SegmentHeader& header() const { return *reinterpret_cast<SegmentHeader*>(base_); }

  // The ring from the owner to the rank with this index.
  Line* ring(int reader) const {
    return reinterpret_cast<Line*>(base_ + layout_.rings) + static_cast<size_t>(reader) * kLines;
  }
  // What the owner says about the segment of the rank with this index.
  Feedback& feedback(int writer) const {
    return reinterpret_cast<Feedback*>(base_ + layout_.feedback)[writer];
  }
  std::byte* slot(int slot) const {
    const size_t small = static_cast<size_t>(slot) * kSmallSlotBytes;
    if (slot < kSmallSlots) return base_ + layout_.slots + small;
    return base_ + layout_.slots + kSmallSlots * kSmallSlotBytes +
           static_cast<size_t>(slot - kSmallSlots) * kLargeSlotBytes;
  }

 private:
  std::byte* base_ = nullptr;
  SegmentLayout layout_;
};

}  // namespace ciuic::transport::shm
