// SPDX-License-Identifier: Apache-2.0
// exchange.h: messages that make progress together, in both directions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

#include "nccl/region.h"

namespace ciuic::fake_nccl {

// The messages from one rank to another come in the order in which they were sent. One that is not
// what the receiver waits for, in its kind or size, is never taken: both hang, as with NCCL.
struct Message {
  int peer = 0;
  std::byte* bytes = nullptr;
  size_t size = 0;
  uint32_t kind = 0;
};

struct Exchange {
  const Region& region;
  const int rank;
  const int size;
  const std::function<bool()> is_stopped;   // asked while nothing moves
  const std::function<void(int)> on_death;  // a peer that is waited for is gone
};

// Returns when all messages are there; false: stopped before. Messages to the own rank are copied.
bool exchange(const Exchange& with, const std::vector<Message>& sends,
              const std::vector<Message>& receives);

}  // namespace ciuic::fake_nccl
