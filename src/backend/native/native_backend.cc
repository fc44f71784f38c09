// SPDX-License-Identifier: Apache-2.0
// native_backend.cc: hands checked and bound operations to the driver.

#include "backend/native/native_backend.h"

#include <algorithm>
#include <utility>

#include "collective/parts.h"
#include "collective/prepare.h"

namespace ciuic::backend {

// Scratch of an operation is not held to less than this, for speed.
static constexpr size_t kLeastPartBytes = 64 * 1024;

static Status closed() {
  return {StatusCode::kClosed, "the communicator is closed; make a new one"};
}

NativeBackend::NativeBackend(NativeOptions options)
    : driver_(std::move(options.driver)),
      group_(driver_->add_group(std::move(options.group), std::move(options.hooks))),
      chooser_(std::move(options.chooser)),
      timeout_ms_(options.timeout_ms),
      buffer_size_(options.buffer_size) {}

NativeBackend::~NativeBackend() { [[maybe_unused]] const Status unheard = close(); }

Capabilities NativeBackend::capabilities() const {
  return {.name = "native", .cuda = false, .can_abort = true};
}

// One request, or one for each part: all that are under way fit into buffer_size.
Status NativeBackend::add_requests(const Call& call, std::vector<engine::Request>* requests) {
  if (const engine::Request* again = repeats_.find(call)) {
    requests->push_back(*again);
    return {};
  }
  Result<engine::Request> whole = collective::prepare(chooser_, call);
  if (!whole.ok()) return whole.status();
  const size_t before = requests->size();
  const size_t scratch_bytes = std::max(buffer_size_ / engine::kMaxActive, kLeastPartBytes);
  collective::add_in_parts(std::move(*whole), chooser_.layout(), scratch_bytes, requests);
  if (requests->size() == before + 1) repeats_.remember(call, requests->back());
  return {};
}

// Uses the requests up.
Work NativeBackend::start(std::span<engine::Request> requests, const OperationOptions& options) {
  if (requests.empty()) return {};
  const int64_t timeout_ms = options.timeout_ms >= 0 ? options.timeout_ms : timeout_ms_;
  const TimeNs now = now_ns();
  const TimeNs deadline = deadline_after(now, timeout_ms);
  for (engine::Request& request : requests) {
    request.timeout_ms = timeout_ms;
    request.deadline = deadline;
  }
  return Work(driver_->submit(group_, requests, now, options.wait_follows));
}

Result<Work> NativeBackend::submit(std::span<const Call> calls, const OperationOptions& options) {
  return submit_when(calls, nullptr, options);
}

Result<Work> NativeBackend::submit_when(std::span<const Call> calls,
                                        std::shared_ptr<const engine::Gate> gate,
                                        const OperationOptions& options) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (group_ == nullptr) return closed();
  requests_.clear();
  for (const Call& call : calls) CIUIC_RETURN_IF_ERROR(add_requests(call, &requests_));
  if (gate != nullptr) {
    for (engine::Request& request : requests_) request.gate = gate;
  }
  return start(requests_, options);
}

Status NativeBackend::check(const Call& call) {
  std::lock_guard<std::mutex> lock(mutex_);
  return group_ == nullptr ? closed() : collective::prepare(chooser_, call).status();
}

class NativeBackend::PreparedRequests final : public Prepared {
 public:
  PreparedRequests(NativeBackend* backend, const OperationOptions& options)
      : backend_(backend), options_(options) {}

  std::vector<engine::Request>* requests() { return &requests_; }

  Result<Work> start() override {
    std::lock_guard<std::mutex> lock(backend_->mutex_);
    if (backend_->group_ == nullptr) return closed();
    backend_->requests_ = requests_;
    return backend_->start(backend_->requests_, options_);
  }

 private:
  NativeBackend* backend_;
  OperationOptions options_;
  std::vector<engine::Request> requests_;
};

Result<std::unique_ptr<Prepared>> NativeBackend::prepare(std::span<const Call> calls,
                                                         const OperationOptions& options) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (group_ == nullptr) return closed();
  auto prepared = std::make_unique<PreparedRequests>(this, options);
  for (const Call& call : calls) CIUIC_RETURN_IF_ERROR(add_requests(call, prepared->requests()));
  return std::unique_ptr<Prepared>(std::move(prepared));
}

Status NativeBackend::add_plan(const std::string& plan_file) {
  Result<plan::PlanFile> file = plan::plan_file_from_json(plan_file);
  if (!file.ok()) return file.status();
  std::lock_guard<std::mutex> lock(mutex_);
  if (group_ == nullptr) return closed();
  return chooser_.add(*file);
}

// With what the other ranks compare and are told.
Result<Work> NativeBackend::start_in_place_of(const engine::Request& call, engine::Request stand_in,
                                              const OperationOptions& options) {
  stand_in.operation = call.operation;
  stand_in.dtype = call.dtype;
  stand_in.op = call.op;
  stand_in.reduces = call.reduces;
  stand_in.root = call.root;
  stand_in.whole_count = call.whole_count > 0 ? call.whole_count : call.count;
  stand_in.fingerprint = call.fingerprint;
  return start({&stand_in, 1}, options);
}

Result<Work> NativeBackend::compare(const engine::Request& call, const OperationOptions& options) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (group_ == nullptr) return closed();
  Result<engine::Request> barrier = collective::prepare(chooser_, Call::barrier());
  if (!barrier.ok()) return barrier.status();
  return start_in_place_of(call, std::move(*barrier), options);
}

Result<uint32_t> NativeBackend::note(const engine::Request& call) {
  static const auto no_steps = std::make_shared<const plan::Plan>();
  std::lock_guard<std::mutex> lock(mutex_);
  if (group_ == nullptr) return closed();
  const uint32_t sequence = driver_->progress(group_).next;
  engine::Request nothing;
  nothing.plan = no_steps;
  nothing.ends_elsewhere = true;
  Result<Work> noted = start_in_place_of(call, std::move(nothing), {.wait_follows = true});
  if (!noted.ok()) return noted.status();
  return sequence;
}

void NativeBackend::progress() { driver_->nudge(); }

void NativeBackend::report(const engine::Cause& cause) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (group_ != nullptr) driver_->report(group_, cause);
}

void NativeBackend::end(const Status& status) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (group_ != nullptr) driver_->end_group(group_, status);
}

void NativeBackend::mark_gone(int rank, const Status& why) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (group_ != nullptr) driver_->mark_gone(group_, rank, why);
}

engine::CallRecord NativeBackend::call_record(uint32_t sequence) {
  std::lock_guard<std::mutex> lock(mutex_);
  return group_ == nullptr ? engine::CallRecord() : driver_->call_record(group_, sequence);
}

engine::GroupProgress NativeBackend::progress_of_group() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (group_ == nullptr) return {.has_ended = true};
  return driver_->progress(group_);
}

bool NativeBackend::needs(uint32_t sequence, int rank) {
  std::lock_guard<std::mutex> lock(mutex_);
  return group_ != nullptr && driver_->needs(group_, sequence, rank);
}

Status NativeBackend::close() {
  std::lock_guard<std::mutex> lock(mutex_);
  return group_ == nullptr ? Status() : driver_->remove_group(std::exchange(group_, nullptr));
}

Status NativeBackend::status() {
  std::lock_guard<std::mutex> lock(mutex_);
  return group_ == nullptr ? closed() : driver_->group_status(group_);
}

size_t NativeBackend::staging_bytes() { return driver_->staging_bytes(); }

size_t NativeBackend::link_bytes() {
  std::lock_guard<std::mutex> lock(mutex_);
  return group_ == nullptr ? 0 : driver_->link_bytes(group_);
}

}  // namespace ciuic::backend
