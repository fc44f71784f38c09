// SPDX-License-Identifier: Apache-2.0
// chunk.h: bytes that have arrived and are not yet used up. Inner to the engine.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ciuic::engine {

class Group;

// In a link's slot (token) or in staging.
struct Chunk {
  const std::byte* data = nullptr;
  uint32_t bytes = 0;
  bool staged = false;    // data is ours, from the pool
  bool borrowed = false;  // data is the peer's own: is_intact() tells whether it counts
  uint64_t token = 0;
};

// receive.cc
void release(Group& group, int peer, Chunk* chunk);
bool stage(Group& group, int peer, Chunk* chunk);  // false: the group is over
// To be asked after a chunk's data was used, and before that shows. False: the group is over.
bool is_intact(Group& group, int peer, const Chunk& chunk);

}  // namespace ciuic::engine
