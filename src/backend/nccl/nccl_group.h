// SPDX-License-Identifier: Apache-2.0
// nccl_group.h: the operations of one group that are in NCCL, in their order.
//
// They run one after another on the group's stream, and end in that order. What ends the group is
// reported as a cause, as the engine does it; the control plane then ends it on every rank by
// end(). Their Works end once NCCL's communicator was aborted, so that nothing writes to their
// memory any more; where that takes too long, they end all the same.
//
// Under the lock of the process (nccl_process.h). Nothing here calls CUDA or NCCL.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>

#include "backend/nccl/nccl_comm.h"
#include "backend/nccl/nccl_event.h"
#include "base/clock.h"
#include "ciuic/status.h"
#include "ciuic/work.h"
#include "engine/cause.h"
#include "engine/work_state.h"
#include "trace/recorder.h"

namespace ciuic::backend {

// What was submitted together.
struct NcclOperation {
  const char* name = "";  // of the first call
  bool is_numbered = false;
  uint32_t first = 0;  // numbers of its collective operations
  uint32_t last = 0;
  TimeNs called_at = 0;
  TimeNs deadline = kNever;
  int64_t timeout_ms = 0;
  Work work;
  engine::WorkState* state = nullptr;  // of `work`, until it has ended
  std::shared_ptr<NcclEvent> end;      // null: somebody says that it has ended
};

class NcclGroup {
 public:
  struct Options {
    int rank = 0;
    std::function<void(const engine::Cause&)> on_cause;  // empty: a cause ends the group at once
    TimeNs grace = 10'000'000'000;    // for NCCL to be aborted, before Works end without
    trace::GroupRecorder trace = {};  // has the calls by NativeBackend::note(), and here their ends
  };

  explicit NcclGroup(Options options) : options_(std::move(options)) {}

  // Its Work ends when it has; at once where the group has ended, and then it is not to be run.
  void start(const std::shared_ptr<NcclOperation>& operation);

  // The oldest, if it is on the device.
  std::shared_ptr<NcclOperation> oldest_launched() const;

  // Has it ended, ends its Work, unless the group is to end.
  void finish(const std::shared_ptr<NcclOperation>& operation);

  // Whether time has brought a cause, or the end. `comm`: what it says of NCCL's.
  void check(TimeNs now);
  void check_comm(const NcclComm::State& state, TimeNs now);

  // "all_reduce (operation 7 of its group, on rank 1)".
  std::string text_of(const NcclOperation& operation) const;

  void report(const engine::Cause& cause);
  bool wants_end() const {  // there is no control plane that would end it
    return !status_.ok() && !has_ended_ && !options_.on_cause;
  }
  void end(const Status& status, TimeNs now);
  void end_works();  // once nothing touches their memory
  void end_trace() { options_.trace = {}; }
  void mark_gone(int rank, const Status& why, bool in_good_order, TimeNs now);

  // NCCL's communicator is being aborted, after the end.
  void set_aborting(bool is_so) { is_aborting_ = is_so; }
  bool is_ending(TimeNs now) const {  // and worth to be waited for
    return has_ended_ && (is_aborting_ || !operations_.empty()) &&
           now - ended_at_ < 2 * options_.grace;
  }

  void set_comm(std::shared_ptr<NcclComm> comm) { comm_ = std::move(comm); }
  const std::shared_ptr<NcclComm>& comm() const { return comm_; }

  bool is_busy() const { return !operations_.empty(); }
  bool is_awaited(TimeNs now) const;  // some operation, for which a stream waits
  bool has_ended() const { return has_ended_; }
  bool is_told() const { return is_told_; }  // a Work has ended with the group's error
  const Status& status() const { return status_; }
  void add_to(engine::GroupProgress* progress) const;
  bool needs(uint32_t sequence) const;

 private:
  void end_work(NcclOperation* operation, const Status& status);
  void report_lost(const NcclOperation& operation);
  void report_late(const NcclOperation& operation);

  Options options_;
  std::shared_ptr<NcclComm> comm_;  // null: not made
  Status status_;                   // ok, or the cause, or how the group has ended
  bool has_ended_ = false;          // end() was called
  bool is_told_ = false;
  bool is_aborting_ = false;
  TimeNs ended_at_ = kNever;
  std::deque<std::shared_ptr<NcclOperation>> operations_;
  int lost_rank_ = -1;  // died
  TimeNs lost_at_ = kNever;
  Status lost_;
  TimeNs remote_error_at_ = kNever;
};

}  // namespace ciuic::backend
