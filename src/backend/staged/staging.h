// SPDX-License-Identifier: Apache-2.0
// staging.h: operations on the memory of a GPU as operations on pinned memory of the host.
//
// A call is cut into pieces (pieces.h). Each is copied out of the device, carried out by the host's
// backend, and copied in; pieces overlap, since each of the three has an order of its own:
//
//   out stream  |out 0|out 1|out 2|...          a host function at each end opens the piece's gate
//   host              |op 0 |op 1 |op 2 |...    numbered at the call, alike on all ranks
//   in stream               |in 0 |in 1 |...    put there by a thread of the group's
//
// A slot of memory is used by one piece after another: the next copy out waits for the copy in
// before it. Each slot has streams of its own, and so have pieces without one, so that a call whose
// input is long to come keeps no earlier one back. Nothing here blocks, and no function of CUDA's
// that may block is called with a lock of the engine's held.
#pragma once

#include <array>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "backend/staged/pieces.h"
#include "backend/staged/pinned_memory.h"
#include "ciuic/buffer.h"
#include "engine/engine.h"
#include "engine/work_state.h"

namespace ciuic::backend {

// Works that a host function of CUDA's will end; of a device that has failed, none ever runs.
struct PendingWorks {
  std::mutex mutex;
  std::set<engine::WorkState*> works;

  bool take(engine::WorkState* work) {
    const std::lock_guard<std::mutex> lock(mutex);
    return works.erase(work) > 0;
  }
};

class Staging {
 public:
  struct Options {
    const cuda::Functions* cuda = nullptr;
    HostBackend* host = nullptr;  // until close()
    int rank = 0;
    int size = 1;
    size_t most_bytes = 0;  // of the slots, together
  };

  explicit Staging(const Options& options);
  ~Staging() { close(); }

  // Starts the calls, all of `device`, that were checked.
  Result<Work> submit(std::span<const Call> calls, const Device& device,
                      const OperationOptions& options);

  // The host's backend is closed. Waits until no copy reads or writes the caller's memory.
  void close();

  size_t bytes() const { return memory_.bytes(); }

 private:
  static constexpr size_t kSlots = CopyStreams::kLanes - 1;

  struct Transfer;
  struct Part;
  using Pieces = std::vector<std::pair<const Call*, Piece>>;
  struct Slot {
    PinnedBlock* block = nullptr;             // null: not needed yet
    std::deque<std::shared_ptr<Part>> users;  // the first one has it
  };

  Result<CopyStreams*> streams_of(int device);
  Status make_ready(const Stream& stream, int device, CudaEvent* ready);
  Result<std::vector<std::shared_ptr<Part>>> placed(Pieces pieces);
  static void bind(Part* part);
  std::shared_ptr<Transfer> new_transfer(CopyStreams* streams, size_t parts);
  void start(const std::shared_ptr<Part>& part, const OperationOptions& options);
  void report(const Status& status);
  Status copy_out(const Part& part);
  Status copy_in(const Part& part);
  void has_ended(const std::shared_ptr<Part>& part, Status status);
  void leave_slot(const Part& part, bool is_well);
  void end(Transfer* transfer, size_t lane);
  Status gather_lanes(const Transfer& transfer, size_t lane, bool with_out);
  void settle(const Transfer& transfer);
  void run_copier();

  const Options options_;
  const cuda::Functions& cuda_;
  const size_t slot_bytes_;
  const std::shared_ptr<engine::WorkDriver> driver_;

  std::mutex mutex_;  // guards what follows, and that pieces are numbered in the order of the calls
  PinnedMemory memory_;
  std::map<int, std::unique_ptr<CopyStreams>> streams_;
  std::array<Slot, kSlots> slots_;
  size_t next_slot_ = 0;
  std::shared_ptr<PendingWorks> pending_ = std::make_shared<PendingWorks>();
  TimeNs settles_until_ = 0;   // after the first failure
  bool is_abandoned_ = false;  // the host's backend may still read and write the memory
  bool closed_ = false;

  std::mutex ended_mutex_;  // guards what follows; taken with the engine's lock held
  std::condition_variable ended_;
  std::deque<std::pair<std::shared_ptr<Part>, Status>> to_end_;
  int under_way_ = 0;  // parts whose end is still to come
  bool closing_ = false;
  std::thread copier_;
};

}  // namespace ciuic::backend
