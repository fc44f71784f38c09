// SPDX-License-Identifier: Apache-2.0
// lending.h: payloads that the peer reads where they lie, in this rank's shared tensors.
//
// A region of the shared pool is offered to the peer over the Unix socket, with its descriptor,
// when a payload first lies in it. The peer maps it when it comes to it, and says so in its
// segment; from then on a line that names place and offset stands for a payload. Until then, or
// where the peer cannot map it, payloads are copied into slots as ever: nobody waits for a mapping.
// Payloads are returned in order, by a counter in the peer's segment.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "memory/shared_pool.h"
#include "transport/shm/segment_layout.h"

namespace ciuic::transport::shm {

// Smaller payloads are copied: they then need not wait for their reader, who may be at something
// else. No less than the engine's kEagerBytes, which go to peers that have not begun.
inline constexpr size_t kMostCopiedBytes = 16 * 1024;

// What is told over the socket. It never leaves the host, so it goes as it lies in memory.
struct Notice {
  char kind = 0;
  uint8_t place = 0;
  std::array<uint8_t, 6> unused{};
  uint64_t bytes = 0;  // of the region
};
inline constexpr char kLends = 'l';      // with a descriptor; the place is free
inline constexpr char kTakesBack = 't';  // the place shall become free
inline constexpr char kGoodbye = 'g';    // this one byte alone, and nothing after it

// The regions of this process, as one group's links look them up. One thread at a time.
class OwnRegions {
 public:
  explicit OwnRegions(std::shared_ptr<memory::SharedPool> pool) : pool_(std::move(pool)) {}

  // Changes with every list.
  uint64_t version() const { return pool_ == nullptr ? 0 : pool_->version(); }

  // The region that has all of the payload; null: it is ordinary memory.
  const memory::SharedRegion* find(const std::byte* payload, size_t bytes);
  bool has(uint32_t number);

 private:
  void refresh();

  std::shared_ptr<memory::SharedPool> pool_;
  uint64_t seen_ = 0;
  std::vector<memory::SharedRegion> regions_;  // by address
};

class Lender {
 public:
  // `peer`: what the peer says about this rank's segment. `socket`: to the peer.
  Lender(OwnRegions* regions, const Feedback* peer, int socket)
      : regions_(regions), peer_(peer), socket_(socket) {}

  // How a line names the payload, which is then lent; none: it is to be copied.
  std::optional<Line::LentReference> lend(const std::byte* payload, size_t bytes, uint64_t call);

  // Takes regions back that are no longer there. To be called now and then.
  void take_back_dropped();

  // The peer shall look at its socket: once after each notice.
  bool take_has_told() { return std::exchange(has_told_, false); }

  bool has_lent() const { return lent_ != returned_; }
  // Sees what the peer has returned. False: it says what cannot be.
  bool look();
  // The number of the call, as given to lend(), that lent the oldest payload not yet returned.
  uint64_t oldest_call() const { return calls_[returned_ % kMostLent]; }
  // The peer reads no more.
  void forget() { returned_ = lent_; }

 private:
  enum class State : uint8_t { kFree, kOffered, kUsable, kRefused, kTakenBack };
  struct Place {
    State state = State::kFree;
    uint32_t region = 0;
    uint64_t last = 0;  // payload that was lent from it
  };

  Place* place_of(const memory::SharedRegion& region);
  void offer(const memory::SharedRegion& region);
  void settle(Place* place);
  bool take_back(Place* place);
  bool tell(const Notice& notice, int fd);
  int index_of(const Place& place) const { return static_cast<int>(&place - places_.data()); }

  OwnRegions* regions_;
  const Feedback* peer_;
  int socket_;
  std::array<Place, kPlaces> places_{};
  size_t last_place_ = 0;
  uint64_t seen_ = 0;  // version of the regions
  bool has_told_ = false;
  uint64_t lent_ = 0;      // payloads, counted from the first
  uint64_t returned_ = 0;  // of them
  std::array<uint64_t, kMostLent> calls_{};
};

}  // namespace ciuic::transport::shm
