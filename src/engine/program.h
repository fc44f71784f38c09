// SPDX-License-Identifier: Apache-2.0
// program.h: a plan with the tables that the engine looks things up in; made once for each plan,
// save for those that depend on a call's size, which hold until a call of another size comes.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "plan/plan.h"

namespace ciuic::engine {

// Where the blocks lie for calls of one size, whatever memory they are called with.
struct Placement {
  // Bytes of one space.
  struct Range {
    plan::Space space = plan::Space::kOutput;
    int64_t begin = 0;
    size_t size = 0;
  };
  struct Step {
    Range source;
    Range target;
    uint32_t chunks = 0;
  };

  int64_t count = -1;  // of the calls that it holds for; -1: none
  int64_t stride = 0;
  size_t element = 0;
  size_t chunk_bytes = 0;

  std::vector<Step> steps;
  std::vector<int64_t> arriving;  // by stream: chunks
  size_t scratch_bytes = 0;
};

struct Program {
  std::shared_ptr<const plan::Plan> plan;

  // The streams' messages in order: which step, and which of the step's peers.
  struct Message {
    int step = 0;
    int place = 0;
  };
  std::vector<std::vector<Message>> receives;  // by stream

  std::vector<int> first_stream;  // by peer: its stream of the lowest lane, -1 for none
  std::vector<int> eager_stream;  // by peer: the same of those with sends
  std::vector<int> next_stream;   // by stream: the same peer's next lane, -1 for none
  std::vector<int> first_place;   // by step: index of its first peer among all steps' peers
  int places = 0;                 // peers of all steps together

  uint8_t traced_algorithm = 0xff;  // as trace::Call has it

  // The scratch blocks that any step touches lie in here; only these get memory.
  plan::BlockRange scratch{plan::Space::kScratch, 0, 0};

  Placement placement;  // of the last call
};

Program compile(std::shared_ptr<const plan::Plan> plan, int ranks);

// The stream with `peer` on `lane`; -1: the plan has none.
inline int stream_of(const Program& program, int peer, int lane) {
  int stream = program.first_stream[peer];
  while (stream >= 0 && program.plan->streams[stream].lane != lane) {
    stream = program.next_stream[stream];
  }
  return stream;
}

}  // namespace ciuic::engine
