// SPDX-License-Identifier: Apache-2.0
// nccl_meeting.h: what the ranks tell each other before they make NCCL's communicator, so that
// what would keep it from coming is named on all of them, before NCCL is called.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "ciuic/status.h"
#include "drivers/cuda/cuda.h"
#include "drivers/nccl/nccl.h"

namespace ciuic::backend {

// Sent as it is.
struct NcclCard {
  std::array<char, 128> host_id{};
  std::array<char, 64> host_name{};
  std::array<char, 32> bus_id{};  // of its GPU
  nccl::UniqueId id;              // rank 0's is the communicator's
  int32_t version = 0;
  int32_t capability = 0;  // of the GPU; 90 is 9.0
  int32_t code = 0;        // StatusCode: why this rank cannot
  std::array<char, 384> why{};

  // A text that does not fit is cut.
  static std::string text(std::span<const char> from);
  static void set(std::span<char> to, const std::string& text);
};

// Of this rank. What fails stands in the card, as does `own`, which is what has failed before.
NcclCard nccl_card(const cuda::Library& cuda, const nccl::Library& nccl, int device, int rank,
                   const Status& own);

// What all ranks find alike in all cards: that they can, or why not, by name.
Status check_cards(std::span<const NcclCard> cards);

// Of all GPUs, which is what NCCL goes by.
int lowest_capability(std::span<const NcclCard> cards);

}  // namespace ciuic::backend
