// SPDX-License-Identifier: Apache-2.0
// native_backend.h: our own engine as a backend: plans over shared memory, TCP and RDMA.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "backend/backend.h"
#include "collective/chooser.h"
#include "collective/repeats.h"
#include "engine/driver.h"

namespace ciuic::backend {

struct NativeOptions {
  std::shared_ptr<engine::Driver> driver;
  engine::GroupConfig group;
  engine::GroupHooks hooks;
  collective::Chooser chooser;
  int64_t timeout_ms = kDefaultTimeoutMs;
  size_t buffer_size = kDefaultBufferSize;
};

class NativeBackend final : public HostBackend {
 public:
  explicit NativeBackend(NativeOptions options);
  ~NativeBackend() override;  // close()

  Capabilities capabilities() const override;
  Result<Work> submit(std::span<const Call> calls, const OperationOptions& options) override;
  Result<std::unique_ptr<Prepared>> prepare(std::span<const Call> calls,
                                            const OperationOptions& options) override;
  Status check(const Call& call) override;
  Result<Work> submit_when(std::span<const Call> calls, std::shared_ptr<const engine::Gate> gate,
                           const OperationOptions& options) override;
  std::shared_ptr<engine::WorkDriver> driver() override { return driver_; }
  Status add_plan(const std::string& plan_file) override;

  // For a backend of another library: compares the ranks' calls, as headers of messages do, in an
  // exchange of nothing. The next operation's number; kMismatch on the Work.
  Result<Work> compare(const engine::Request& call, const OperationOptions& options);

  // For the same: gives the call the next operation's number and a record that others can be told,
  // without an exchange.
  Result<uint32_t> note(const engine::Request& call);

  void progress() override;
  void report(const engine::Cause& cause) override;
  Status close() override;
  Status status() override;
  void end(const Status& status) override;
  void mark_gone(int rank, const Status& why) override;
  engine::CallRecord call_record(uint32_t sequence) override;
  engine::GroupProgress progress_of_group() override;
  bool needs(uint32_t sequence, int rank) override;
  size_t staging_bytes() override;
  size_t link_bytes() override;

 private:
  class PreparedRequests;

  Status add_requests(const Call& call, std::vector<engine::Request>* requests);
  Result<Work> start_in_place_of(const engine::Request& call, engine::Request stand_in,
                                 const OperationOptions& options);
  Work start(std::span<engine::Request> requests, const OperationOptions& options);

  std::shared_ptr<engine::Driver> driver_;
  std::mutex mutex_;  // guards what follows, and that calls are numbered in the order of submit()
  engine::Group* group_ = nullptr;  // null once closed
  collective::Chooser chooser_;
  collective::Repeats repeats_;
  int64_t timeout_ms_;
  size_t buffer_size_;
  std::vector<engine::Request> requests_;  // of the calls that are being made
};

}  // namespace ciuic::backend
