// SPDX-License-Identifier: Apache-2.0
// native_backend.cc: hands checked and bound operations to the driver.

#include "backend/native/native_backend.h"

#include <algorithm>
#include <utility>

#include "collective/prepare.h"

namespace ciuic::backend {

// A part is not cut smaller than this, for speed.
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

// Elements of one part of the operation. A reduction to one rank needs scratch on others, as long
// as what they add up; it is done part by part, so that all that are under way fit into
// buffer_size. Alike on all ranks, since what it looks at is.
static int64_t part_count(const Call& call, size_t buffer_size) {
  const size_t bytes = std::max<size_t>(buffer_size / engine::kMaxActive, kLeastPartBytes);
  return std::max<int64_t>(1, static_cast<int64_t>(bytes / size_of(call.input.dtype)));
}

// One request, or one for each part.
Status NativeBackend::add_requests(const Call& call, std::vector<engine::Request>* requests) {
  Result<engine::Request> whole = collective::prepare(chooser_, call);
  if (!whole.ok()) return whole.status();
  const int64_t count = call.input.count;
  if (call.operation != Operation::kReduce || count <= part_count(call, buffer_size_)) {
    requests->push_back(std::move(*whole));
    return {};
  }
  const int64_t part = part_count(call, buffer_size_);
  const bool has_output = chooser_.rank() == call.root;
  for (int64_t begin = 0; begin < count; begin += part) {
    Call of_part = call;
    const size_t offset = static_cast<size_t>(begin) * size_of(call.input.dtype);
    of_part.input.count = std::min(part, count - begin);
    of_part.input.data = static_cast<const std::byte*>(call.input.data) + offset;
    if (has_output) {
      of_part.output.count = of_part.input.count;
      of_part.output.data = static_cast<std::byte*>(call.output.data) + offset;
    }
    Result<engine::Request> request = collective::prepare(chooser_, of_part);
    if (!request.ok()) return request.status();
    request->whole_count = count;
    request->fingerprint = whole->fingerprint;  // a part is no call of its own
    requests->push_back(std::move(*request));
  }
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
  std::lock_guard<std::mutex> lock(mutex_);
  if (group_ == nullptr) return closed();
  requests_.clear();
  for (const Call& call : calls) CIUIC_RETURN_IF_ERROR(add_requests(call, &requests_));
  return start(requests_, options);
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
