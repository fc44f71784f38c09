// SPDX-License-Identifier: Apache-2.0
// lending.cc: which regions the peer has, and which payloads it has returned.

#include "transport/shm/lending.h"

#include <algorithm>
#include <span>

#include "drivers/posix/fd_passing.h"

namespace ciuic::transport::shm {

// A place goes to another region only when so many payloads came from others since: to map a region
// takes as long as to copy a few payloads.
static constexpr uint64_t kIdleLends = 1024;

void OwnRegions::refresh() {
  if (seen_ == version()) [[likely]]
    return;
  seen_ = version();  // before the list, which may then be newer
  pool_->regions(&regions_);
}

const memory::SharedRegion* OwnRegions::find(const std::byte* payload, size_t bytes) {
  refresh();
  const auto after = [](const std::byte* data, const memory::SharedRegion& region) {
    return data < region.data;
  };
  const auto next = std::upper_bound(regions_.begin(), regions_.end(), payload, after);
  if (next == regions_.begin() || !std::prev(next)->has(payload, bytes)) return nullptr;
  return &*std::prev(next);
}

bool OwnRegions::has(uint32_t number) {
  refresh();
  return std::any_of(regions_.begin(), regions_.end(),
                     [number](const auto& region) { return region.number == number; });
}

std::optional<Line::LentReference> Lender::lend(const std::byte* payload, size_t bytes,
                                                uint64_t call) {
  const memory::SharedRegion* region = regions_->find(payload, bytes);
  if (region == nullptr) return std::nullopt;
  Place* place = place_of(*region);
  if (place == nullptr) {
    offer(*region);
    return std::nullopt;
  }
  if (place->state != State::kUsable) [[unlikely]]
    settle(place);
  if (place->state != State::kUsable || lent_ - returned_ == kMostLent) return std::nullopt;
  calls_[lent_ % kMostLent] = call;
  place->last = ++lent_;
  return Line::LentReference{static_cast<uint64_t>(payload - region->data),
                             static_cast<uint32_t>(index_of(*place)), static_cast<uint32_t>(bytes)};
}

Lender::Place* Lender::place_of(const memory::SharedRegion& region) {
  const auto is_it = [&region](const Place& place) {
    return place.region == region.number && place.state != State::kFree &&
           place.state != State::kTakenBack;
  };
  if (is_it(places_[last_place_])) return &places_[last_place_];
  const auto found = std::find_if(places_.begin(), places_.end(), is_it);
  if (found == places_.end()) return nullptr;
  last_place_ = static_cast<size_t>(found - places_.begin());
  return &*found;
}

// What the peer has made of an offer, or of one that was taken back.
void Lender::settle(Place* place) {
  const uint64_t bit = uint64_t{1} << index_of(*place);
  const bool mapped = (peer_->mapped.load(std::memory_order_acquire) & bit) != 0;
  const bool refused = (peer_->refused.load(std::memory_order_acquire) & bit) != 0;
  if (place->state == State::kTakenBack) {
    if (!mapped && !refused) place->state = State::kFree;
  } else if (mapped) {
    place->state = State::kUsable;
  } else if (refused) {
    place->state = State::kRefused;
  }
}

void Lender::offer(const memory::SharedRegion& region) {
  Place* found = nullptr;
  Place* idle = nullptr;
  for (Place& place : places_) {
    if (place.state == State::kTakenBack) settle(&place);
    if (place.state == State::kFree) {
      found = &place;
      break;
    }
    const bool is_idle = place.state == State::kUsable && place.last <= returned_ &&
                         lent_ - place.last >= kIdleLends;
    if (is_idle && (idle == nullptr || place.last < idle->last)) idle = &place;
  }
  if (found == nullptr) {
    if (idle != nullptr) take_back(idle);
    return;
  }
  const Notice notice{
      .kind = kLends, .place = static_cast<uint8_t>(index_of(*found)), .bytes = region.bytes};
  if (!tell(notice, region.fd)) return;
  *found = {.state = State::kOffered, .region = region.number, .last = lent_};
}

// False: the socket is full at this moment.
bool Lender::take_back(Place* place) {
  const auto index = static_cast<uint8_t>(index_of(*place));
  if (!tell({.kind = kTakesBack, .place = index}, -1)) return false;
  place->state = State::kTakenBack;
  return true;
}

void Lender::take_back_dropped() {
  const uint64_t version = regions_->version();
  if (version == seen_) [[likely]]
    return;
  bool all = true;
  for (Place& place : places_) {
    if (place.state == State::kFree || place.state == State::kTakenBack) continue;
    // What is lent from it is returned first, also where an error has let its owner drop it.
    const bool goes = !regions_->has(place.region);
    if (goes && (place.last > returned_ || !take_back(&place))) all = false;
  }
  if (all) seen_ = version;
}

// A socket takes so short a message whole or not at all.
bool Lender::tell(const Notice& notice, int fd) {
  const std::span<const int> fds(&fd, fd >= 0 ? 1 : 0);
  const Result<size_t> sent = posix::send_with_fds(socket_, &notice, sizeof notice, fds);
  if (!sent.ok() || *sent == 0) return false;
  has_told_ = true;
  return true;
}

bool Lender::look() {
  // Sequentially consistent: see Segment::set_sleeping().
  const uint64_t returned = peer_->returned.load(std::memory_order_seq_cst);
  if (returned < returned_ || returned > lent_) return false;
  returned_ = returned;
  return true;
}

}  // namespace ciuic::transport::shm
