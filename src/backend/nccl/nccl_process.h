// SPDX-License-Identifier: Apache-2.0
// nccl_process.h: CUDA and NCCL in this process, and who looks whether operations have ended.
//
// A background thread looks while operations are under way, in growing intervals, and sleeps else;
// a thread in wait() looks by itself for a moment, then leaves it to that one. What is looked at is
// asked for without a lock, so that a call of CUDA's that does not return keeps nobody else from
// ending the group. What ends a group is aborted by a thread of its own, since NCCL may take its
// time.
//
// One for a process, which it lives as long as. In a forked child it does nothing.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "backend/nccl/nccl_group.h"
#include "base/fork.h"
#include "drivers/cuda/cuda.h"
#include "drivers/nccl/nccl.h"
#include "engine/completions.h"
#include "engine/work_state.h"

namespace ciuic::backend {

class NcclProcess final : public engine::WorkDriver,
                          public std::enable_shared_from_this<NcclProcess> {
 public:
  using Lock = std::unique_lock<std::mutex>;

  // The process's. `cuda_library`, `nccl_libraries`: paths that come before others.
  //   kUnavailable  no CUDA, no GPU, or no NCCL; says what was tried
  //   kClosed       this process was forked from one that has it
  static Result<std::shared_ptr<NcclProcess>> of(const std::string& cuda_library,
                                                 std::span<const std::string> nccl_libraries);

  // For tests. Both are there until the process's last thread has ended.
  NcclProcess(const cuda::Library* cuda, const nccl::Library* nccl) : cuda_(*cuda), nccl_(*nccl) {}
  ~NcclProcess() override;

  const cuda::Library& cuda() const { return cuda_; }
  const nccl::Library& nccl() const { return nccl_; }

  Lock lock() { return Lock(mutex_); }
  void add(std::shared_ptr<NcclGroup> group);
  void remove(const NcclGroup* group);
  void watch();  // an operation was started that nobody waits for; with the lock held

  // NcclGroup::end(), and the abort that follows it, on a thread of its own.
  void end(const std::shared_ptr<NcclGroup>& group, const Status& status);

  // Until what callers have waited for, by having a stream wait, has ended: they hold its results
  // for theirs. While the group is well, and not beyond the operations' deadlines.
  void drain(const NcclGroup& group);

  // The same of a group that is left. False: nothing was wrong or under way, so that NCCL's
  // communicator can be closed in good order, and was not aborted.
  bool leave(const std::shared_ptr<NcclGroup>& group, const Status& status);

  // Until the Works of a group that has ended have, too, and NCCL is aborted; not for ever.
  void wait_for_end(const NcclGroup& group);

  // Looks once. Returns whether an operation has ended. Without the lock.
  bool look();

  bool wait(engine::WorkState* work, TimeNs deadline) override;
  void nudge() override;
  void complete(std::function<void()> fn) override { completions_.call(std::move(fn)); }
  void wake() override {}  // no operation waits for anything but its stream
  bool is_of_parent() const override { return made_in_ != fork_generation(); }

 private:
  struct Probe;

  bool probe(Probe* probe);
  void abort(const std::shared_ptr<NcclGroup>& group, Lock held);
  bool is_busy() const;
  void run_background();

  const uint32_t made_in_ = fork_generation();
  const cuda::Library& cuda_;
  const nccl::Library& nccl_;

  std::mutex mutex_;  // guards what follows, and the groups
  std::vector<std::shared_ptr<NcclGroup>> groups_;
  bool closing_ = false;
  std::condition_variable parked_;  // the background thread
  std::condition_variable ended_;   // Works
  std::thread background_;
  engine::Completions completions_;
};

// Who makes a stream wait for an operation.
class NcclOrder final : public engine::StreamOrder {
 public:
  NcclOrder(std::shared_ptr<NcclProcess> process, std::shared_ptr<NcclGroup> group,
            std::shared_ptr<NcclEvent> end, int device)
      : process_(std::move(process)),
        group_(std::move(group)),
        end_(std::move(end)),
        device_(device) {}

  Status wait_on(engine::WorkState* work, const Stream& stream, int64_t timeout_ms) override;

 private:
  const std::shared_ptr<NcclProcess> process_;
  const std::shared_ptr<NcclGroup> group_;
  const std::shared_ptr<NcclEvent> end_;
  const int device_;
};

}  // namespace ciuic::backend
