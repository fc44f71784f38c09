// SPDX-License-Identifier: Apache-2.0
// data_path.h: what the control plane of a group asks of whoever carries its operations out.
//
// Any thread may call; nothing here blocks for longer than one step of the engine takes.
#pragma once

#include <cstdint>

#include "ciuic/status.h"
#include "engine/cause.h"

namespace ciuic::engine {

class DataPath {
 public:
  virtual ~DataPath() = default;

  // Ends the group with `status`: its operations, and every later one at once. The first one stays.
  virtual void end(const Status& status) = 0;

  // Said before mark_gone() of a peer that has not died, but has closed its communicator.
  virtual void mark_left(int /*rank*/) {}

  // A peer is gone for good; `why` begins with it. Operations that need more of it are a cause to
  // end the group.
  virtual void mark_gone(int rank, const Status& why) = 0;

  virtual CallRecord call_record(uint32_t sequence) = 0;
  virtual GroupProgress progress_of_group() = 0;

  // Whether the operation, which is under way here, still has to hear from the rank, or to send to
  // it. What has arrived from it counts as heard.
  virtual bool needs(uint32_t sequence, int rank) = 0;
};

}  // namespace ciuic::engine
