// SPDX-License-Identifier: Apache-2.0
// state.h: what a Communicator holds. Inner to the communicator.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>

#include "backend/backend.h"
#include "ciuic/communicator.h"
#include "communicator/control_group.h"
#include "communicator/shrink.h"
#include "memory/shared_pool.h"

namespace ciuic {

namespace backend {
class MpiBackend;
class NcclBackend;
}  // namespace backend

struct Communicator::State {
  State() = default;
  ~State();  // also of one whose join has failed, and that nobody closes
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  int rank = 0;
  int size = 1;
  std::unique_ptr<control::ControlGroup> control;  // null for one rank
  std::unique_ptr<backend::Backend> backend;
  backend::NcclBackend* nccl = nullptr;             // within it, where it is that
  backend::MpiBackend* mpi = nullptr;               // likewise
  std::shared_ptr<memory::SharedPool> shared_pool;  // the process's; used until close()
  CommunicatorOptions options;              // with nothing left to default but rank, size and store
  std::unique_ptr<OldGroup> group_at_join;  // for shrink(); null for one rank
  size_t segment_bytes = 0;
  std::string description;  // describe(), settled at the join

  uint32_t made_in = 0;  // fork_generation()
  std::atomic<bool> closed{false};
  std::atomic<bool> has_shrunk{false};  // whoever asks for survivors knows that the group is over

  Status check_usable(const char* name) const;  // not closed, nor forked
};

}  // namespace ciuic
