// SPDX-License-Identifier: Apache-2.0
// pieces.h: a call of device memory as calls of host memory, each small enough for a slot.
//
// All ranks cut alike, since what is looked at is. Messages, and uneven calls whose counts a rank
// knows only its part of (all_to_all_v, gather_v, scatter_v), are one piece, however large.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ciuic/call.h"

namespace ciuic::backend {

// Bytes between the device's memory of the whole call and the piece's slot.
struct Copy {
  size_t device_offset = 0;  // from the call's input, or output
  size_t slot_offset = 0;
  size_t bytes = 0;
};

struct Piece {
  Call call;                 // its buffers have no addresses yet
  bool is_straight = false;  // the whole call, on the device's memory; nothing below but the call
  bool has_input = false;    // on this rank
  bool has_output = false;   // likewise
  size_t input_offset = 0;   // in the slot
  size_t output_offset = 0;  // likewise
  size_t bytes = 0;          // of the slot
  std::vector<Copy> out;     // before the call, from the device
  std::vector<Copy> in;      // after it, to the device
};

// One or more. The call was checked (collective/prepare.h).
std::vector<Piece> cut(const Call& call, int rank, int size, size_t slot_bytes);

}  // namespace ciuic::backend
