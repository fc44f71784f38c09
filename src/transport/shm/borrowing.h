// SPDX-License-Identifier: Apache-2.0
// borrowing.h: the peer's shared tensors, mapped here read-only; the reader's side of lending.h.
//
// Nothing that the peer says is believed: places, offsets and lengths are checked, and a region
// must be sealed in its size, so that reading it cannot fail.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "drivers/posix/memfd.h"
#include "drivers/posix/unique_fd.h"
#include "transport/shm/lending.h"
#include "transport/shm/segment_layout.h"

namespace ciuic::transport::shm {

class Borrower {
 public:
  // `own`: what this rank says about the peer's segment.
  explicit Borrower(Feedback* own) : own_(own) {}

  // What came over the socket; `fd` may be invalid. False: it is nonsense. A region that cannot be
  // mapped here is only refused.
  bool take(const Notice& notice, posix::UniqueFd fd);

  // The payload that a line names, which is then borrowed; null: it names none.
  const std::byte* borrow(const Line::LentReference& reference, uint64_t* number);

  // The payload with this number is no longer needed. True: the peer has been told of one or more.
  bool give_back(uint64_t number);

  // Gives up the mappings that nobody reads in.
  void close();

  size_t mapped_bytes() const;

 private:
  struct Place {
    posix::Mapping mapping;
    uint32_t borrowed = 0;  // payloads in it
    bool refused = false;
    bool taken_back = false;  // goes with the last of them

    bool is_free() const { return mapping.data() == nullptr && !refused; }
  };

  void free_place(size_t index);
  void publish();

  Feedback* own_;
  std::array<Place, kPlaces> places_;
  uint64_t borrowed_ = 0;                      // payloads, counted from the first
  uint64_t returned_ = 0;                      // of them, all before this one
  uint64_t given_back_ = 0;                    // bits by number, of those after it
  std::array<uint8_t, kMostLent> place_of_{};  // by number
};

}  // namespace ciuic::transport::shm
