// SPDX-License-Identifier: Apache-2.0
// exchange.cc: messages through the rings of a region.

#include "nccl/exchange.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

namespace ciuic::fake_nccl {

namespace {

struct Header {
  uint64_t size = 0;
  uint64_t kind = 0;
};

// How much of `size` bytes goes into, or comes out of, the ring at `place` in one piece.
size_t piece(uint64_t place, size_t there, size_t size) {
  return std::min({size, there, kRingBytes - static_cast<size_t>(place % kRingBytes)});
}

size_t put(Ring& ring, const std::byte* bytes, size_t size) {
  size_t moved = 0;
  while (moved < size) {
    const uint64_t place = ring.written.load(std::memory_order_relaxed);
    const size_t room =
        kRingBytes - static_cast<size_t>(place - ring.read.load(std::memory_order_acquire));
    const size_t next = piece(place, room, size - moved);
    if (next == 0) break;
    std::memcpy(ring.bytes + place % kRingBytes, bytes + moved, next);
    ring.written.store(place + next, std::memory_order_release);
    moved += next;
  }
  return moved;
}

size_t take(Ring& ring, std::byte* bytes, size_t size) {
  size_t moved = 0;
  while (moved < size) {
    const uint64_t place = ring.read.load(std::memory_order_relaxed);
    const auto there = static_cast<size_t>(ring.written.load(std::memory_order_acquire) - place);
    const size_t next = piece(place, there, size - moved);
    if (next == 0) break;
    std::memcpy(bytes + moved, ring.bytes + place % kRingBytes, next);
    ring.read.store(place + next, std::memory_order_release);
    moved += next;
  }
  return moved;
}

// The messages to, or from, one peer.
class Lane {
 public:
  Lane(Ring* ring, bool is_send) : ring_(ring), is_send_(is_send) {}

  void add(const Message& message) { messages_.push_back(message); }
  bool is_empty() const { return messages_.empty(); }

  // Whether something has moved.
  bool progress() {
    bool moved = false;
    while (!messages_.empty() && !is_stuck_) {
      const Message& message = messages_.front();
      if (moved_ < sizeof(Header)) {
        if (!progress_header(message, &moved)) return moved;
        if (is_stuck_) break;
      }
      const size_t done = moved_ - sizeof(Header);
      const size_t next = is_send_ ? put(*ring_, message.bytes + done, message.size - done)
                                   : take(*ring_, message.bytes + done, message.size - done);
      moved_ += next;
      moved = moved || next > 0;
      if (moved_ < sizeof(Header) + message.size) return moved;
      messages_.pop_front();
      moved_ = 0;
    }
    return moved;
  }

 private:
  // False: it is not through.
  bool progress_header(const Message& message, bool* moved) {
    if (is_send_) header_ = {.size = message.size, .kind = message.kind};
    auto* bytes = reinterpret_cast<std::byte*>(&header_) + moved_;
    const size_t left = sizeof(Header) - moved_;
    const size_t next = is_send_ ? put(*ring_, bytes, left) : take(*ring_, bytes, left);
    moved_ += next;
    *moved = *moved || next > 0;
    if (moved_ < sizeof(Header)) return false;
    if (header_.size != message.size || header_.kind != message.kind) {
      std::fprintf(stderr,
                   "fake NCCL: hangs, since a message of kind %u with %zu bytes was to come from "
                   "rank %d, and one of kind %u with %zu bytes came\n",
                   message.kind, message.size, message.peer, static_cast<unsigned>(header_.kind),
                   static_cast<size_t>(header_.size));
      is_stuck_ = true;
    }
    return true;
  }

  Ring* ring_;
  bool is_send_;
  bool is_stuck_ = false;
  std::deque<Message> messages_;
  Header header_;
  size_t moved_ = 0;  // of the first message, with its header
};

// Those to itself, first to first; false: they do not fit, which hangs.
bool copy_own(int rank, const std::vector<Message>& sends, const std::vector<Message>& receives) {
  std::vector<Message> from;
  std::vector<Message> to;
  const auto is_own = [&](const Message& message) { return message.peer == rank; };
  std::copy_if(sends.begin(), sends.end(), std::back_inserter(from), is_own);
  std::copy_if(receives.begin(), receives.end(), std::back_inserter(to), is_own);
  if (from.size() != to.size()) return false;
  for (size_t i = 0; i < from.size(); ++i) {
    if (from[i].size != to[i].size) return false;
    std::memmove(to[i].bytes, from[i].bytes, to[i].size);
  }
  return true;
}

}  // namespace

bool exchange(const Exchange& with, const std::vector<Message>& sends,
              const std::vector<Message>& receives) {
  std::vector<Lane> lanes;  // to each, then from each
  Shared& shared = with.region.shared();
  for (int peer = 0; peer < with.size; ++peer)
    lanes.emplace_back(&shared.rings[with.rank][peer], true);
  for (int peer = 0; peer < with.size; ++peer)
    lanes.emplace_back(&shared.rings[peer][with.rank], false);
  const auto fill = [&](const std::vector<Message>& messages, int first) {
    for (const Message& message : messages) {
      if (message.peer != with.rank) lanes[static_cast<size_t>(first + message.peer)].add(message);
    }
  };
  fill(sends, 0);
  fill(receives, with.size);
  const bool fits = copy_own(with.rank, sends, receives);

  // A peer that was gone before its ring was looked into will put nothing more there.
  std::vector<bool> gone(lanes.size());
  while (true) {
    const uint32_t seen = shared.seats[with.rank].bell.load();
    bool moved = false;
    bool waits = !fits;
    for (size_t i = 0; i < lanes.size(); ++i) {
      if (lanes[i].is_empty()) continue;
      const int peer = static_cast<int>(i) % with.size;
      if (lanes[i].progress()) {
        moved = true;
        with.region.ring(peer);
      } else if (gone[i]) {
        with.on_death(peer);
      }
      waits = waits || !lanes[i].is_empty();
    }
    if (!waits) return true;
    if (moved) continue;
    if (with.is_stopped()) return false;
    with.region.sleep(with.rank, seen);
    for (size_t i = 0; i < lanes.size(); ++i) {
      gone[i] = !lanes[i].is_empty() && with.region.is_gone(static_cast<int>(i) % with.size);
    }
  }
}

}  // namespace ciuic::fake_nccl
