// SPDX-License-Identifier: Apache-2.0
// borrowing.cc: regions are mapped, payloads in them counted, and given back in order.

#include "transport/shm/borrowing.h"

#include "base/assert.h"

namespace ciuic::transport::shm {

static constexpr uint64_t bit_of(uint64_t number) { return uint64_t{1} << (number % 64); }
static_assert(kMostLent == 64 && kPlaces == 64);

bool Borrower::take(const Notice& notice, posix::UniqueFd fd) {
  if (notice.place >= kPlaces) return false;
  Place& place = places_[notice.place];
  if (notice.kind == kTakesBack) {
    if (place.is_free() || place.taken_back) return false;
    place.taken_back = true;
    if (place.borrowed == 0) free_place(notice.place);
    return true;
  }
  if (notice.kind != kLends || !place.is_free() || notice.bytes == 0) return false;
  place.refused = true;
  // Without a descriptor of its own this process gets none, and does without.
  if (fd.valid() && posix::check_sealed(fd.get(), notice.bytes).ok()) {
    Result<posix::Mapping> mapping = posix::Mapping::map(fd.get(), notice.bytes, false);
    if (mapping.ok()) {
      place.mapping = std::move(*mapping);
      place.refused = false;
    }
  }
  publish();
  return true;
}

void Borrower::free_place(size_t index) {
  places_[index] = Place();
  publish();
}

void Borrower::publish() {
  uint64_t mapped = 0;
  uint64_t refused = 0;
  for (size_t index = 0; index < kPlaces; ++index) {
    if (places_[index].mapping.data() != nullptr) mapped |= bit_of(index);
    if (places_[index].refused) refused |= bit_of(index);
  }
  own_->mapped.store(mapped, std::memory_order_release);
  own_->refused.store(refused, std::memory_order_release);
}

const std::byte* Borrower::borrow(const Line::LentReference& reference, uint64_t* number) {
  if (reference.place >= kPlaces || borrowed_ - returned_ == kMostLent) return nullptr;
  Place& place = places_[reference.place];
  const size_t bytes = place.mapping.bytes();
  const bool fits =
      reference.offset <= bytes && reference.payload_bytes <= bytes - reference.offset;
  if (place.mapping.data() == nullptr || place.taken_back || !fits) return nullptr;
  ++place.borrowed;
  place_of_[borrowed_ % kMostLent] = static_cast<uint8_t>(reference.place);
  *number = borrowed_++;
  return place.mapping.data() + reference.offset;
}

bool Borrower::give_back(uint64_t number) {
  CIUIC_ASSERT(number - returned_ < borrowed_ - returned_);
  const size_t index = place_of_[number % kMostLent];
  Place& place = places_[index];
  --place.borrowed;
  if (place.borrowed == 0 && place.taken_back) free_place(index);
  given_back_ |= bit_of(number);
  if (number != returned_) return false;
  for (; (given_back_ & bit_of(returned_)) != 0; ++returned_) given_back_ &= ~bit_of(returned_);
  // Sequentially consistent: see Segment::set_sleeping().
  own_->returned.store(returned_, std::memory_order_seq_cst);
  return true;
}

void Borrower::close() {
  for (Place& place : places_) {
    if (place.borrowed == 0) place = Place();
  }
}

size_t Borrower::mapped_bytes() const {
  size_t bytes = 0;
  for (const Place& place : places_) bytes += place.mapping.bytes();
  return bytes;
}

}  // namespace ciuic::transport::shm
