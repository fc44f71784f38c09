// SPDX-License-Identifier: Apache-2.0
// mpi_backend.h: an MPI library as a backend. Start here.
//
//   mpi_backend.h   a group: checks calls by the code of the native backend, and hands them on
//   mpi_process.h   the process's MPI: opened, initialised, made to progress
//   mpi_group.h     the group's operations under way, in their order
//   operation.h     one operation as MPI's calls: moves.cc, reductions.cc, types.h
//
// The group keeps its native backend beside: for the control plane, which finds deaths, late ranks
// and calls that differ, and for what the library itself sends (tags above kMaxTag).
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "backend/backend.h"
#include "backend/mpi/mpi_process.h"
#include "backend/native/native_backend.h"
#include "collective/chooser.h"

namespace ciuic::backend {

struct MpiBackendOptions {
  std::shared_ptr<MpiProcess> process;
  mpi::Handle communicator = 0;  // with the group's ranks; freed by close() where that is sound
  std::unique_ptr<NativeBackend> native;
  collective::Chooser chooser;
  std::function<void(const engine::Cause&)> on_cause;  // as GroupHooks has it; empty for one rank
  bool oversubscribed = false;
  bool check = false;               // CIUIC_CHECK
  trace::GroupRecorder trace = {};  // what the group does is written there
  int64_t timeout_ms = kDefaultTimeoutMs;
  size_t buffer_size = kDefaultBufferSize;
};

class MpiBackend final : public HostBackend {
 public:
  explicit MpiBackend(MpiBackendOptions options);
  ~MpiBackend() override;  // close()

  const std::shared_ptr<MpiProcess>& process() const { return process_; }

  // A communicator of some of the ranks, which all call it.
  Result<mpi::Handle> part(std::span<const int> ranks);

  Capabilities capabilities() const override;
  Result<Work> submit(std::span<const Call> calls, const OperationOptions& options) override;
  Result<std::unique_ptr<Prepared>> prepare(std::span<const Call> calls,
                                            const OperationOptions& options) override;
  Status check(const Call& call) override;
  Result<Work> submit_when(std::span<const Call> calls, std::shared_ptr<const engine::Gate> gate,
                           const OperationOptions& options) override;
  bool reaches_gpu(const Call& call) const override;
  std::shared_ptr<engine::WorkDriver> driver() override { return process_; }
  Status add_plan(const std::string& plan_file) override;
  void progress() override { process_->nudge(); }
  void report(const engine::Cause& cause) override;
  Status close() override;
  Status status() override;
  void end(const Status& status) override;
  void mark_left(int rank) override;
  void mark_gone(int rank, const Status& why) override;
  engine::CallRecord call_record(uint32_t sequence) override;
  engine::GroupProgress progress_of_group() override;
  bool needs(uint32_t sequence, int rank) override;
  size_t staging_bytes() override;
  size_t link_bytes() override { return native_->link_bytes(); }

 private:
  class PreparedCalls;
  struct Checked {
    engine::Request request;
    Call call;
  };

  Status check(const Call& call, std::vector<Checked>* checked);
  Result<Work> start(std::span<Checked> calls, const OperationOptions& options);

  const std::shared_ptr<MpiProcess> process_;
  const std::unique_ptr<NativeBackend> native_;
  const bool checks_;
  const int64_t timeout_ms_;

  std::mutex mutex_;  // guards what follows, and that calls have one order; before process_'s lock
  bool closed_ = false;
  collective::Chooser chooser_;
  std::vector<Checked> checked_;  // calls that are being made

  MpiGroup group_;  // with process_'s lock
  std::vector<bool> left_;
};

}  // namespace ciuic::backend
