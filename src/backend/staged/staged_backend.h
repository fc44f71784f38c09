// SPDX-License-Identifier: Apache-2.0
// staged_backend.h: a backend of the CPU's memory that takes tensors on a GPU, too. Start here.
//
//   staged_backend.h  which calls go which way
//   staging.h         what happens to those of a GPU's memory
//   pieces.h          how they are cut
//   pinned_memory.h   what they travel through
//
// CUDA is opened at the first call that needs it. Calls of the CPU's memory go straight on.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "backend/backend.h"
#include "backend/staged/staging.h"

namespace ciuic::backend {

struct StagedOptions {
  std::unique_ptr<HostBackend> host;
  std::string cuda_library;  // CIUIC_CUDA_LIBRARY
  int rank = 0;
  int size = 1;
  size_t buffer_size = kDefaultBufferSize;  // a quarter of it for pinned memory
};

class StagedBackend final : public Backend {
 public:
  explicit StagedBackend(StagedOptions options);
  ~StagedBackend() override;  // close()

  HostBackend* host() { return options_.host.get(); }

  Capabilities capabilities() const override;
  Result<Work> submit(std::span<const Call> calls, const OperationOptions& options) override;
  Result<std::unique_ptr<Prepared>> prepare(std::span<const Call> calls,
                                            const OperationOptions& options) override;
  Status add_plan(const std::string& plan_file) override { return host_.add_plan(plan_file); }
  void progress() override { host_.progress(); }
  void report(const engine::Cause& cause) override { host_.report(cause); }
  Status close() override;
  Status status() override { return host_.status(); }
  void end(const Status& status) override { host_.end(status); }
  void mark_left(int rank) override { host_.mark_left(rank); }
  void mark_gone(int rank, const Status& why) override { host_.mark_gone(rank, why); }
  engine::CallRecord call_record(uint32_t sequence) override { return host_.call_record(sequence); }
  engine::GroupProgress progress_of_group() override { return host_.progress_of_group(); }
  bool needs(uint32_t sequence, int rank) override { return host_.needs(sequence, rank); }
  size_t staging_bytes() override;
  size_t link_bytes() override { return host_.link_bytes(); }

 private:
  class PreparedCalls;

  Status check(std::span<const Call> calls);
  Result<Staging*> staging();
  Result<Work> submit_staged(std::span<const Call> calls, const Device& device,
                             const OperationOptions& options);

  const StagedOptions options_;
  HostBackend& host_;
  std::mutex mutex_;  // guards what follows
  std::unique_ptr<Staging> staging_;
  bool closed_ = false;
};

}  // namespace ciuic::backend
