// SPDX-License-Identifier: Apache-2.0
// mpi_group.h: the operations of one group that are in MPI, in their order.
//
// Collective operations are numbered at the call and issued in that order; those that are issued
// are under way at once. Messages are not numbered and wait for nobody. What ends the group is
// reported as a cause, as the engine does it; the control plane then ends it on every rank by
// end().
//
// MPI cannot take an operation back. What is under way when the group ends is abandoned: its Work
// ends with the error, and what MPI may still read or write of ours is never freed.
//
// Under the lock of the process's MPI (mpi_process.h), on a thread that may call it.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "backend/mpi/operation.h"
#include "base/clock.h"
#include "ciuic/status.h"
#include "engine/cause.h"
#include "trace/recorder.h"

namespace ciuic::backend {

class MpiGroup {
 public:
  struct Options {
    MpiCommunicator communicator;
    std::function<void(const engine::Cause&)> on_cause;  // empty: a cause ends the group at once
    bool oversubscribed = false;                         // more ranks than cores on this host
    trace::GroupRecorder trace = {};                     // what the group does is written there
  };

  explicit MpiGroup(Options options) : options_(std::move(options)) {}

  const MpiCommunicator& communicator() const { return options_.communicator; }
  bool oversubscribed() const { return options_.oversubscribed; }

  // To be filled in and started: an old one where there is one.
  std::unique_ptr<MpiOperation> spare();

  // Numbers a collective operation. Its `work` ends once it has; at once where the group has ended.
  void start(std::unique_ptr<MpiOperation> operation);

  // Issues what may be, and looks what has ended. Returns whether anything has.
  bool step(TimeNs now);

  void report(const engine::Cause& cause);
  void settle();  // to be called after a report() from outside
  void end(const Status& status);
  void close();  // end(), by this rank
  void mark_gone(int rank, const Status& why, bool in_good_order);

  bool is_busy() const { return !collectives_.empty() || !messages_.empty(); }
  bool has_abandoned() const { return abandoned_; }
  const Status& status() const { return status_; }
  engine::CallRecord call_record(uint32_t sequence) const;
  engine::GroupProgress progress() const;
  bool needs(uint32_t sequence) const;
  size_t staging_bytes() const;

 private:
  using Operations = std::vector<std::unique_ptr<MpiOperation>>;

  bool may_follow(const MpiOperation& message) const;
  bool step(MpiOperation* operation, bool may_issue);
  int test(MpiOperation* operation);
  int note_received(MpiOperation* operation, const void* status);
  void finish(std::unique_ptr<MpiOperation> operation);
  void abandon(std::unique_ptr<MpiOperation> operation, const Status& status);
  void fail(const MpiOperation& operation, int code);
  void check_deadlines(TimeNs now);
  void report_lost(const MpiOperation& operation);
  void record(const MpiOperation& operation);
  void trace_call(const MpiOperation& operation, bool starts_at_once);
  void trace_end(const MpiOperation& operation, StatusCode code);

  static constexpr uint32_t kRecords = 64;

  Options options_;
  Status status_;           // ok, or the cause, or how the group has ended
  bool has_ended_ = false;  // end() was called
  bool abandoned_ = false;
  uint32_t next_sequence_ = 0;
  uint32_t next_message_ = 0;
  Operations collectives_;
  Operations messages_;
  Operations spares_;
  std::array<engine::CallRecord, kRecords> records_{};
  int lost_rank_ = -1;  // died
  Status lost_;
  TimeNs next_deadline_ = kNever;
};

}  // namespace ciuic::backend
