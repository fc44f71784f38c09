// SPDX-License-Identifier: Apache-2.0
// nccl_backend.h: NCCL as a backend, for tensors on a GPU. Start here.
//
//   nccl_backend.h    a group: checks calls by the code of the native backend, and hands them on
//   nccl_meeting.h    how its ranks make NCCL's communicator, or find why they cannot
//   nccl_process.h    the process's CUDA and NCCL, and who looks whether operations have ended
//   nccl_group.h      the group's operations under way, in their order
//   nccl_comm.h       a communicator of NCCL's and its stream; nccl_event.h
//   launch.h          our operations as NCCL's calls
//   nccl_settings.h   NCCL's environment variables
//
// The group keeps its native backend beside: it numbers the operations, its control plane finds
// deaths, late ranks and calls that differ, and it carries barriers and calls of the CPU's memory,
// and by way of the host those that NCCL does not reduce.
//
// A call puts its work into a stream of the group's, behind what the caller's stream has now; so
// operations of a group run one after another, messages among them. The host waits for nothing,
// save in the first calls, in which NCCL connects. Messages of a pair of ranks match in their order
// alone: tags are for other backends.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/native/native_backend.h"
#include "backend/nccl/launch.h"
#include "backend/nccl/nccl_process.h"
#include "backend/staged/staged_backend.h"
#include "collective/chooser.h"

namespace ciuic::backend {

struct NcclBackendOptions {
  std::shared_ptr<NcclProcess> process;
  std::unique_ptr<NativeBackend> native;
  std::string cuda_library;  // CIUIC_CUDA_LIBRARY
  collective::Chooser chooser;
  std::function<void(const engine::Cause&)> on_cause;  // as GroupHooks has it; empty for one rank
  std::string host_name;                               // for messages
  std::string host_id;                                 // alike where GPUs are the same
  bool check = false;                                  // CIUIC_CHECK
  trace::GroupRecorder trace = {};                     // that of `native`
  // Calls of the CPU's memory, and those that NCCL does not reduce; else they are refused, but for
  // the library's own.
  bool others_go_native = true;
  int64_t timeout_ms = kDefaultTimeoutMs;
  size_t buffer_size = kDefaultBufferSize;
  int device = -1;  // of the group's tensors on this rank; -1: that of ensure_comm()
  int traffic_class = nccl::kUndefined;
};

class NcclBackend final : public Backend {
 public:
  explicit NcclBackend(NcclBackendOptions options);
  ~NcclBackend() override;  // close()

  const std::shared_ptr<NcclProcess>& process() const { return process_; }

  // Makes NCCL's communicator, with all ranks, once the control plane runs and before any call of
  // tensors on a GPU. What would keep it from coming is named on all ranks, before NCCL is called.
  Status ensure_comm(int device, int64_t timeout_ms);

  Capabilities capabilities() const override;
  Result<Work> submit(std::span<const Call> calls, const OperationOptions& options) override;
  Result<std::unique_ptr<Prepared>> prepare(std::span<const Call> calls,
                                            const OperationOptions& options) override;
  Status add_plan(const std::string& plan_file) override;
  void progress() override;
  void report(const engine::Cause& cause) override;
  Status close() override;
  Status status() override;
  void end(const Status& status) override;
  void mark_left(int rank) override;
  void mark_gone(int rank, const Status& why) override;
  engine::CallRecord call_record(uint32_t sequence) override;
  engine::GroupProgress progress_of_group() override;
  bool needs(uint32_t sequence, int rank) override;
  size_t staging_bytes() override { return staged_->staging_bytes(); }
  size_t link_bytes() override { return native_.link_bytes(); }

 private:
  class PreparedCalls;

  // Calls of one device's memory, checked.
  struct Checked {
    std::vector<Call> calls;
    std::vector<engine::Request> requests;
    int device = 0;
  };

  struct Times {
    TimeNs now = 0;
    TimeNs deadline = kNever;
    int64_t timeout_ms = 0;
  };

  Times times_of(int64_t timeout_ms) const;
  bool goes_native(const Device& device, std::span<const Call> calls,
                   const OperationOptions& options) const;
  bool goes_staged(std::span<const Call> calls) const;
  Result<Backend*> other_for(std::span<const Call> calls, const OperationOptions& options,
                             int* device);
  Status refuse_cpu(const Call& call) const;
  Status check(std::span<const Call> calls, int device, Checked* checked);
  Status check_device(const Call& call, int device) const;
  Status check_stream(const Checked& checked, const Stream& stream) const;
  Result<Work> start(const Checked& checked, const OperationOptions& options);
  Status make_stream(int device, std::shared_ptr<NcclComm>* comm);
  Status meet(const Status& own, int device, const Times& times, nccl::UniqueId* id);
  Status connect(const std::shared_ptr<NcclComm>& comm, const nccl::UniqueId& id,
                 const Times& times);
  Status compare(const Checked& checked, const Times& times);
  Status number(const Checked& checked, NcclOperation* operation);
  std::shared_ptr<NcclOperation> begin(const char* name, const Times& times,
                                       std::shared_ptr<NcclEvent> end);
  Status put(const Checked& checked, const Stream& stream, const NcclOperation& operation);
  Status wait_until_begun(NcclComm* comm);
  Work failed(const Status& status);

  const std::shared_ptr<NcclProcess> process_;
  NativeBackend& native_;
  const std::unique_ptr<StagedBackend> staged_;  // has native_
  const std::shared_ptr<NcclGroup> group_;
  const NcclBackendOptions options_;  // what is not in the above
  NcclPlace place_;
  std::atomic<bool> closed_{false};

  std::mutex mutex_;  // guards what follows, and that calls have one order; before process_'s lock
  collective::Chooser chooser_;
  int device_ = -1;
  std::shared_ptr<NcclComm> comm_;  // null: not made
  std::shared_ptr<NcclEvents> events_;
  std::shared_ptr<NcclEvent> ready_;  // the caller's stream, at the call
  std::vector<bool> left_;            // with process_'s lock
};

}  // namespace ciuic::backend
