// SPDX-License-Identifier: Apache-2.0
// mpi_backend.cc: calls are checked, described and handed to the group.

#include "backend/mpi/mpi_backend.h"

#include <fmt/format.h>

#include <utility>

#include "collective/prepare.h"

namespace ciuic::backend {

static Status closed() {
  return {StatusCode::kClosed, "the communicator is closed; make a new one"};
}

MpiBackend::MpiBackend(MpiBackendOptions options)
    : process_(std::move(options.process)),
      native_(std::move(options.native)),
      checks_(options.check),
      timeout_ms_(options.timeout_ms),
      chooser_(std::move(options.chooser)),
      group_({.communicator = {.library = &process_->library(),
                               .types = process_->types(),
                               .handle = options.communicator,
                               .rank = chooser_.rank(),
                               .size = chooser_.size(),
                               .buffer_size = options.buffer_size},
              .on_cause = std::move(options.on_cause),
              .oversubscribed = options.oversubscribed,
              .trace = std::move(options.trace)}),
      left_(static_cast<size_t>(chooser_.size()), false) {
  const MpiProcess::Lock held = process_->lock();
  process_->add(&group_);
}

MpiBackend::~MpiBackend() { [[maybe_unused]] const Status unheard = close(); }

Capabilities MpiBackend::capabilities() const {
  return {.name = "mpi", .cuda = false, .can_abort = false};
}

Result<mpi::Handle> MpiBackend::part(std::span<const int> ranks) {
  int tag = 0;
  for (const int rank : ranks) tag = (tag * 31 + rank + 1) & 0x7fff;
  return process_->part_of(group_.communicator().handle, ranks, tag);
}

// The caller's mistakes, in the words of the native backend.
Status MpiBackend::check(const Call& call, std::vector<Checked>* checked) {
  const char* name = collective::name_of(call);
  if (!call.algorithm.empty() && call.operation < Operation::kSend) {
    return {StatusCode::kUnsupported,
            fmt::format("{}: algorithm \"{}\" is the native backend's, and MPI has its own; leave "
                        "it out, or take backend=\"native\". Nothing was sent.",
                        name, call.algorithm)};
  }
  Result<engine::Request> request = collective::prepare(chooser_, call);
  if (!request.ok()) return request.status();
  request->plan.reset();
  if (call.operation >= Operation::kSend && call.tag > process_->largest_tag()) {
    return {StatusCode::kInvalidArgument,
            fmt::format("{}: tag {} is too large for this MPI, whose largest is {}. Nothing was "
                        "sent.",
                        name, call.tag, process_->largest_tag())};
  }
  checked->push_back({std::move(*request), call});
  return {};
}

Result<Work> MpiBackend::start(std::span<Checked> calls, const OperationOptions& options) {
  if (calls.empty()) return Work();
  CIUIC_RETURN_IF_ERROR(process_->check_thread());
  const int64_t timeout_ms = options.timeout_ms >= 0 ? options.timeout_ms : timeout_ms_;
  const TimeNs now = now_ns();
  const TimeNs deadline = deadline_after(now, timeout_ms);
  std::vector<Work> comparisons;
  if (checks_) {
    for (const Checked& each : calls) {
      if (each.request.kind != engine::RequestKind::kCollective) continue;
      Result<Work> compared = native_->compare(each.request, {.timeout_ms = timeout_ms});
      if (!compared.ok()) return compared.status();
      comparisons.push_back(std::move(*compared));
    }
  }
  auto* work = new engine::WorkState(process_, static_cast<int>(calls.size()));
  const MpiProcess::Lock held = process_->lock();
  size_t compared = 0;
  for (Checked& each : calls) {
    std::unique_ptr<MpiOperation> operation = group_.spare();
    operation->request = std::move(each.request);
    operation->request.timeout_ms = timeout_ms;
    operation->request.deadline = deadline;
    operation->call = std::move(each.call);
    operation->called_at = now;
    work->retain();
    operation->work = work;
    if (checks_ && !operation->is_message()) operation->check = comparisons[compared++];
    group_.start(std::move(operation));
  }
  if (!options.wait_follows && !work->done()) process_->watch();
  return Work(work);
}

Result<Work> MpiBackend::submit(std::span<const Call> calls, const OperationOptions& options) {
  return submit_when(calls, nullptr, options);
}

Result<Work> MpiBackend::submit_when(std::span<const Call> calls,
                                     std::shared_ptr<const engine::Gate> gate,
                                     const OperationOptions& options) {
  if (!calls.empty() && calls[0].operation >= Operation::kSend && calls[0].tag > kMaxTag) {
    return native_->submit_when(calls, std::move(gate), options);
  }
  std::lock_guard<std::mutex> lock(mutex_);
  if (closed_) return closed();
  checked_.clear();
  for (const Call& call : calls) CIUIC_RETURN_IF_ERROR(check(call, &checked_));
  for (Checked& each : checked_) each.request.gate = gate;
  return start(checked_, options);
}

bool MpiBackend::reaches_gpu(const Call& call) const {
  return goes_straight(process_->library(), call);
}

Status MpiBackend::check(const Call& call) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (closed_) return closed();
  checked_.clear();
  return check(call, &checked_);
}

class MpiBackend::PreparedCalls final : public Prepared {
 public:
  PreparedCalls(MpiBackend* backend, const OperationOptions& options)
      : backend_(backend), options_(options) {}

  std::vector<Checked>* calls() { return &calls_; }

  Result<Work> start() override {
    std::lock_guard<std::mutex> lock(backend_->mutex_);
    if (backend_->closed_) return closed();
    backend_->checked_ = calls_;
    return backend_->start(backend_->checked_, options_);
  }

 private:
  MpiBackend* backend_;
  OperationOptions options_;
  std::vector<Checked> calls_;
};

Result<std::unique_ptr<Prepared>> MpiBackend::prepare(std::span<const Call> calls,
                                                      const OperationOptions& options) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (closed_) return closed();
  auto prepared = std::make_unique<PreparedCalls>(this, options);
  for (const Call& call : calls) CIUIC_RETURN_IF_ERROR(check(call, prepared->calls()));
  return std::unique_ptr<Prepared>(std::move(prepared));
}

Status MpiBackend::add_plan(const std::string& /*plan_file*/) {
  return {StatusCode::kUnsupported,
          "add_plan: plans are the native backend's, and this group's is mpi"};
}

void MpiBackend::report(const engine::Cause& cause) {
  const MpiProcess::Lock held = process_->lock();
  group_.report(cause);
  group_.settle();
}

void MpiBackend::end(const Status& status) {
  native_->end(status);
  const MpiProcess::Lock held = process_->lock();
  group_.end(status);
  if (group_.has_abandoned()) process_->abandon();
}

void MpiBackend::mark_left(int rank) {
  native_->mark_left(rank);
  const MpiProcess::Lock held = process_->lock();
  left_[static_cast<size_t>(rank)] = true;
}

void MpiBackend::mark_gone(int rank, const Status& why) {
  native_->mark_gone(rank, why);
  const MpiProcess::Lock held = process_->lock();
  group_.mark_gone(rank, why, left_[static_cast<size_t>(rank)]);
}

engine::CallRecord MpiBackend::call_record(uint32_t sequence) {
  const MpiProcess::Lock held = process_->lock();
  return group_.call_record(sequence);
}

engine::GroupProgress MpiBackend::progress_of_group() {
  const MpiProcess::Lock held = process_->lock();
  return group_.progress();
}

bool MpiBackend::needs(uint32_t sequence, int /*rank*/) {
  const MpiProcess::Lock held = process_->lock();
  return group_.needs(sequence);
}

Status MpiBackend::close() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (std::exchange(closed_, true)) return {};
  }
  bool was_well = false;
  {
    const MpiProcess::Lock held = process_->lock();
    was_well = group_.status().ok() && !group_.is_busy();
    group_.close();
    if (group_.has_abandoned()) process_->abandon();
  }
  process_->remove(&group_);
  if (was_well) process_->free(group_.communicator().handle);
  return native_->close();
}

Status MpiBackend::status() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (closed_) return closed();
  }
  const MpiProcess::Lock held = process_->lock();
  return group_.status();
}

size_t MpiBackend::staging_bytes() {
  const MpiProcess::Lock held = process_->lock();
  return group_.staging_bytes();
}

}  // namespace ciuic::backend
