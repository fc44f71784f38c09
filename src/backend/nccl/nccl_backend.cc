// SPDX-License-Identifier: Apache-2.0
// nccl_backend.cc: calls are checked, numbered and put into the group's stream.

#include "backend/nccl/nccl_backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "backend/nccl/nccl_meeting.h"
#include "base/assert.h"
#include "collective/device.h"
#include "collective/prepare.h"

namespace ciuic::backend {

static constexpr std::chrono::microseconds kLeastSleep{20};
static constexpr std::chrono::microseconds kMostSleep{1000};

// For NCCL to be aborted, before Works end without: as long as one operation may take, within
// these.
static constexpr TimeNs kLeastGrace = 100'000'000;
static constexpr TimeNs kMostGrace = 10'000'000'000;

// For NCCL to free what it has, at close().
static constexpr int64_t kCloseMs = 5000;

static Status closed() {
  return {StatusCode::kClosed, "the communicator is closed; make a new one"};
}

NcclBackend::NcclBackend(NcclBackendOptions options)
    : process_(std::move(options.process)),
      native_(*options.native),
      staged_(std::make_unique<StagedBackend>(StagedOptions{.host = std::move(options.native),
                                                            .cuda_library = options.cuda_library,
                                                            .rank = options.chooser.rank(),
                                                            .size = options.chooser.size(),
                                                            .buffer_size = options.buffer_size})),
      group_(std::make_shared<NcclGroup>(NcclGroup::Options{
          .rank = options.chooser.rank(),
          .on_cause = std::move(options.on_cause),
          .grace = std::clamp(deadline_after(0, options.timeout_ms), kLeastGrace, kMostGrace),
          .trace = std::move(options.trace)})),
      options_(std::move(options)),
      chooser_(options_.chooser),
      device_(options_.device),
      left_(static_cast<size_t>(chooser_.size()), false) {
  place_ = {.rank = chooser_.rank(),
            .size = chooser_.size(),
            .version = process_->nccl().version,
            .has_other = options_.others_go_native};
  process_->add(group_);
}

NcclBackend::~NcclBackend() { [[maybe_unused]] const Status unheard = close(); }

Capabilities NcclBackend::capabilities() const {
  return {.name = "nccl", .cuda = true, .can_abort = true};
}

NcclBackend::Times NcclBackend::times_of(int64_t timeout_ms) const {
  const TimeNs now = now_ns();
  if (timeout_ms < 0) timeout_ms = options_.timeout_ms;
  return {.now = now, .deadline = deadline_after(now, timeout_ms), .timeout_ms = timeout_ms};
}

// Barriers have no memory, and the library's own messages have tags that nobody else has.
bool NcclBackend::goes_native(const Device& device, std::span<const Call> calls,
                              const OperationOptions& options) const {
  if (device.kind != DeviceKind::kCpu) return false;
  return options_.others_go_native || options.of_library ||
         std::all_of(calls.begin(), calls.end(), [](const Call& call) {
           return call.operation == Operation::kBarrier ||
                  (call.operation >= Operation::kSend && call.tag > kMaxTag);
         });
}

// Each by itself, so that ranks that make other batches of the same calls send the same way.
bool NcclBackend::goes_staged(std::span<const Call> calls) const {
  return options_.others_go_native &&
         std::none_of(calls.begin(), calls.end(),
                      [this](const Call& call) { return can_reduce(place_, call); });
}

Status NcclBackend::refuse_cpu(const Call& call) const {
  return {StatusCode::kInvalidArgument,
          fmt::format("{}: the tensor is on the CPU, and backend=\"nccl\" takes tensors on a GPU; "
                      "move it there (tensor.cuda()), or take backend=\"auto\", which sends CPU "
                      "tensors by itself. Nothing was sent.",
                      collective::name_of(call))};
}

Status NcclBackend::check_device(const Call& call, int device) const {
  if (device_ < 0 || device_ == device) {
    if (device < process_->cuda().devices) return {};
    return {StatusCode::kInvalidArgument,
            fmt::format("{}: the tensor is on cuda:{}, and this process has {} GPUs. Nothing was "
                        "sent.",
                        collective::name_of(call), device, process_->cuda().devices)};
  }
  return {StatusCode::kInvalidArgument,
          fmt::format("{}: the tensor is on cuda:{}, and this group's tensors are on cuda:{} on "
                      "rank {}; move it there, or make another group. Nothing was sent.",
                      collective::name_of(call), device, device_, place_.rank)};
}

static uint32_t of_gpus(uint32_t fingerprint) {
  constexpr uint32_t kOther = 0x9e3779b9;
  return fingerprint == kOther ? fingerprint : fingerprint ^ kOther;  // never 0
}

// The caller's mistakes, in the words of the native backend where it has them, too.
Status NcclBackend::check(std::span<const Call> calls, int device, Checked* checked) {
  checked->device = device;
  for (const Call& call : calls) {
    const char* name = collective::name_of(call);
    CIUIC_RETURN_IF_ERROR(check_device(call, device));
    if (call.operation == Operation::kBarrier) {
      return {StatusCode::kUnsupported,
              "barrier: it is not made together with calls of tensors on a GPU; call it by itself. "
              "Nothing was sent."};
    }
    if (!call.algorithm.empty() && call.operation < Operation::kSend) {
      return {StatusCode::kUnsupported,
              fmt::format("{}: algorithm \"{}\" is the native backend's, and NCCL has its own; "
                          "leave it out, or take backend=\"native\". Nothing was sent.",
                          name, call.algorithm)};
    }
    Result<engine::Request> request = collective::prepare(chooser_, collective::on_cpu(call));
    if (!request.ok()) return request.status();
    request->plan.reset();
    // Not the call of a rank whose tensor is on the CPU, which goes by native.
    if (options_.others_go_native) request->fingerprint = of_gpus(request->fingerprint);
    checked->calls.push_back(call);
    checked->requests.push_back(std::move(*request));
  }
  return check_calls(place_, calls);
}

Status NcclBackend::check_stream(const Checked& checked, const Stream& stream) const {
  const cuda::Functions& cuda = process_->cuda().functions;
  const cuda::DeviceScope scope(cuda, checked.device);
  int status = 0;
  const int code = cuda.stream_is_capturing(stream.handle, &status);
  CIUIC_RETURN_IF_ERROR(cuda::error_of(cuda, "cudaStreamIsCapturing", code));
  if (status == 0) return {};
  return {StatusCode::kUnsupported,
          fmt::format("{}: the stream is being captured into a CUDA graph, which this backend does "
                      "not take part in; call it outside. Nothing was sent.",
                      collective::name_of(checked.calls.front()))};
}

// A Work that has ended so.
Work NcclBackend::failed(const Status& status) {
  auto* state = new engine::WorkState(process_);
  state->finish(status);
  return Work(state);
}

// To be finished, or ended with the group.
std::shared_ptr<NcclOperation> NcclBackend::begin(const char* name, const Times& times,
                                                  std::shared_ptr<NcclEvent> end) {
  auto operation = std::make_shared<NcclOperation>();
  operation->name = name;
  operation->called_at = times.now;
  operation->deadline = times.deadline;
  operation->timeout_ms = times.timeout_ms;
  operation->end = std::move(end);
  operation->state = new engine::WorkState(process_);
  operation->work = Work(operation->state);
  if (operation->end != nullptr) {
    operation->state->set_order(
        std::make_unique<NcclOrder>(process_, group_, operation->end, device_));
  }
  return operation;
}

// What NCCL was called for has begun, or the group is to end.
Status NcclBackend::wait_until_begun(NcclComm* comm) {
  std::chrono::microseconds sleep = kLeastSleep;
  while (true) {
    const NcclComm::State state = comm->look();
    if (!state.error.ok() || !state.in_progress) return state.error;
    {
      const NcclProcess::Lock held = process_->lock();
      if (!group_->status().ok()) return group_->status();
    }
    std::this_thread::sleep_for(sleep);
    sleep = std::min(2 * sleep, kMostSleep);
  }
}

Status NcclBackend::make_stream(int device, std::shared_ptr<NcclComm>* comm) {
  Result<std::unique_ptr<NcclComm>> made =
      NcclComm::create({.cuda = &process_->cuda().functions,
                        .nccl = &process_->nccl(),
                        .device = device,
                        .rank = place_.rank,
                        .size = place_.size,
                        .traffic_class = options_.traffic_class});
  if (!made.ok()) return made.status();
  *comm = std::move(*made);
  auto events = std::make_shared<NcclEvents>(&process_->cuda().functions, device);
  Result<std::shared_ptr<NcclEvent>> ready = events->take();
  if (!ready.ok()) return ready.status();
  events_ = std::move(events);
  ready_ = std::move(*ready);
  return {};
}

// The ranks look at each other's cards.
Status NcclBackend::meet(const Status& own, int device, const Times& times, nccl::UniqueId* id) {
  NcclCard card = nccl_card(process_->cuda(), process_->nccl(), device, place_.rank, own);
  NcclCard::set(card.host_id, options_.host_id);
  NcclCard::set(card.host_name, options_.host_name);
  std::vector<NcclCard> cards(static_cast<size_t>(place_.size));
  const Call exchange = Call::all_gather(
      {&card, sizeof card, DataType::kUInt8, {}},
      {cards.data(), static_cast<int64_t>(cards.size() * sizeof card), DataType::kUInt8, {}});
  Result<Work> exchanged =
      native_.submit({&exchange, 1}, {.timeout_ms = times.timeout_ms, .wait_follows = true});
  if (!exchanged.ok()) return exchanged.status();
  CIUIC_RETURN_IF_ERROR(exchanged->wait());
  CIUIC_RETURN_IF_ERROR(check_cards(cards));
  *id = cards[0].id;
  place_.capability = lowest_capability(cards);
  return {};
}

// What goes wrong here ends the group, on all ranks.
Status NcclBackend::connect(const std::shared_ptr<NcclComm>& comm, const nccl::UniqueId& id,
                            const Times& times) {
  const auto making = begin("making NCCL's communicator", times, nullptr);
  {
    const NcclProcess::Lock held = process_->lock();
    group_->set_comm(comm);
    group_->start(making);
    if (making->state == nullptr) return group_->status();
    process_->watch();
  }
  Status begun = comm->begin(id);
  if (begun.ok()) begun = wait_until_begun(comm.get());
  {
    const NcclProcess::Lock held = process_->lock();
    if (begun.ok()) {
      group_->finish(making);
    } else {
      group_->check_comm({.error = begun}, now_ns());
    }
  }
  return making->work.wait();
}

Status NcclBackend::ensure_comm(int device, int64_t timeout_ms) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (closed_) return closed();
  if (comm_ != nullptr) return {};
  const Times times = times_of(timeout_ms);
  std::shared_ptr<NcclComm> comm;
  const Status own = make_stream(device, &comm);
  if (place_.size == 1) {
    CIUIC_RETURN_IF_ERROR(own);
    const NcclProcess::Lock held = process_->lock();
    group_->set_comm(comm);
  } else {
    nccl::UniqueId id;
    CIUIC_RETURN_IF_ERROR(meet(own, device, times, &id));
    CIUIC_RETURN_IF_ERROR(connect(comm, id, times));
  }
  device_ = device;
  comm_ = std::move(comm);
  return {};
}

// CIUIC_CHECK: on the host, before NCCL is called.
Status NcclBackend::compare(const Checked& checked, const Times& times) {
  std::vector<Work> works;
  for (const engine::Request& request : checked.requests) {
    if (request.kind != engine::RequestKind::kCollective) continue;
    Result<Work> compared =
        native_.compare(request, {.timeout_ms = times.timeout_ms, .wait_follows = true});
    if (!compared.ok()) return compared.status();
    works.push_back(std::move(*compared));
  }
  for (Work& work : works) CIUIC_RETURN_IF_ERROR(work.wait());
  return {};
}

// The numbers are the native backend's.
Status NcclBackend::number(const Checked& checked, NcclOperation* operation) {
  for (const engine::Request& request : checked.requests) {
    if (request.kind != engine::RequestKind::kCollective) continue;
    Result<uint32_t> sequence = native_.note(request);
    if (!sequence.ok()) return sequence.status();
    if (!std::exchange(operation->is_numbered, true)) operation->first = *sequence;
    operation->last = *sequence;
  }
  return {};
}

// The group's stream waits for the caller's, then come NCCL's calls, then what marks their end.
Status NcclBackend::put(const Checked& checked, const Stream& stream,
                        const NcclOperation& operation) {
  const cuda::Functions& cuda = process_->cuda().functions;
  const cuda::DeviceScope scope(cuda, device_);
  int code = cuda.event_record(ready_->event, stream.handle);
  CIUIC_RETURN_IF_ERROR(cuda::error_of(cuda, "cudaEventRecord", code));
  code = cuda.stream_wait_event(comm_->stream(), ready_->event, 0);
  CIUIC_RETURN_IF_ERROR(cuda::error_of(cuda, "cudaStreamWaitEvent", code));
  CIUIC_RETURN_IF_ERROR(launch(place_, checked.calls, comm_.get()));
  CIUIC_RETURN_IF_ERROR(wait_until_begun(comm_.get()));
  code = cuda.event_record(operation.end->event, comm_->stream());
  CIUIC_RETURN_IF_ERROR(cuda::error_of(cuda, "cudaEventRecord", code));
  operation.end->is_recorded.store(true, std::memory_order_release);
  return {};
}

Result<Work> NcclBackend::start(const Checked& checked, const OperationOptions& options) {
  if (checked.calls.empty()) return Work();
  CIUIC_RETURN_IF_ERROR(check_stream(checked, options.stream));
  CIUIC_ASSERT(comm_ != nullptr);  // the join has made it
  const Times times = times_of(options.timeout_ms);
  if (options_.check && place_.size > 1) {
    const Status compared = compare(checked, times);
    if (!compared.ok()) return failed(compared);
  }
  Result<std::shared_ptr<NcclEvent>> end = events_->take();
  if (!end.ok()) return end.status();
  const auto operation = begin(checked.requests.front().operation, times, std::move(*end));
  for (const Call& call : checked.calls) {
    if (call.operation == Operation::kRecv) operation->state->came_from(call.peer, call.tag);
  }
  const Status numbered = number(checked, operation.get());
  if (!numbered.ok()) return numbered;
  {
    const NcclProcess::Lock held = process_->lock();
    group_->start(operation);
    if (operation->state == nullptr) return operation->work;  // the group has ended
    process_->watch();  // a caller who waits has its stream wait, and looks no more
  }
  const Status status = put(checked, options.stream, *operation);
  if (!status.ok()) {
    const NcclProcess::Lock held = process_->lock();
    group_->check_comm({.error = status}, now_ns());
  }
  return operation->work;
}

// Null where NCCL is to take them, which are on `device` then.
Result<Backend*> NcclBackend::other_for(std::span<const Call> calls,
                                        const OperationOptions& options, int* device) {
  Result<Device> of_calls = collective::device_of(calls, place_.rank);
  if (!of_calls.ok()) return of_calls.status();
  if (goes_native(*of_calls, calls, options)) return static_cast<Backend*>(&native_);
  if (of_calls->kind == DeviceKind::kCpu) return refuse_cpu(calls.front());
  *device = of_calls->index;
  if (!goes_staged(calls)) return static_cast<Backend*>(nullptr);
  CIUIC_RETURN_IF_ERROR(check_device(calls.front(), *device));
  return static_cast<Backend*>(staged_.get());
}

Result<Work> NcclBackend::submit(std::span<const Call> calls, const OperationOptions& options) {
  int device = 0;
  const Result<Backend*> other = other_for(calls, options, &device);
  if (!other.ok()) return other.status();
  if (*other != nullptr) return (*other)->submit(calls, options);
  std::lock_guard<std::mutex> lock(mutex_);
  if (closed_) return closed();
  Checked checked;
  CIUIC_RETURN_IF_ERROR(check(calls, device, &checked));
  return start(checked, options);
}

class NcclBackend::PreparedCalls final : public Prepared {
 public:
  PreparedCalls(NcclBackend* backend, Checked checked, const OperationOptions& options)
      : backend_(backend), checked_(std::move(checked)), options_(options) {}

  void set_stream(const Stream& stream) override { options_.stream = stream; }

  Result<Work> start() override {
    std::lock_guard<std::mutex> lock(backend_->mutex_);
    if (backend_->closed_) return closed();
    return backend_->start(checked_, options_);
  }

 private:
  NcclBackend* backend_;
  const Checked checked_;
  OperationOptions options_;
};

Result<std::unique_ptr<Prepared>> NcclBackend::prepare(std::span<const Call> calls,
                                                       const OperationOptions& options) {
  int device = 0;
  const Result<Backend*> other = other_for(calls, options, &device);
  if (!other.ok()) return other.status();
  if (*other != nullptr) return (*other)->prepare(calls, options);
  std::lock_guard<std::mutex> lock(mutex_);
  if (closed_) return closed();
  Checked checked;
  CIUIC_RETURN_IF_ERROR(check(calls, device, &checked));
  return std::unique_ptr<Prepared>(
      std::make_unique<PreparedCalls>(this, std::move(checked), options));
}

Status NcclBackend::add_plan(const std::string& plan_file) {
  if (options_.others_go_native) return native_.add_plan(plan_file);
  return {StatusCode::kUnsupported,
          "add_plan: plans are the native backend's, and this group's is nccl"};
}

void NcclBackend::progress() {
  native_.progress();
  process_->nudge();
}

void NcclBackend::report(const engine::Cause& cause) {
  Status ends;
  {
    const NcclProcess::Lock held = process_->lock();
    group_->report(cause);
    if (group_->wants_end()) ends = group_->status();
  }
  if (!ends.ok()) process_->end(group_, ends);
}

void NcclBackend::end(const Status& status) {
  native_.end(status);
  process_->end(group_, status);
}

void NcclBackend::mark_left(int rank) {
  native_.mark_left(rank);
  const NcclProcess::Lock held = process_->lock();
  left_[static_cast<size_t>(rank)] = true;
}

void NcclBackend::mark_gone(int rank, const Status& why) {
  native_.mark_gone(rank, why);
  const NcclProcess::Lock held = process_->lock();
  group_->mark_gone(rank, why, left_[static_cast<size_t>(rank)], now_ns());
}

engine::CallRecord NcclBackend::call_record(uint32_t sequence) {
  return native_.call_record(sequence);
}

engine::GroupProgress NcclBackend::progress_of_group() {
  engine::GroupProgress progress = native_.progress_of_group();
  const NcclProcess::Lock held = process_->lock();
  group_->add_to(&progress);
  return progress;
}

bool NcclBackend::needs(uint32_t sequence, int rank) {
  if (native_.needs(sequence, rank)) return true;
  const NcclProcess::Lock held = process_->lock();
  return group_->needs(sequence);
}

Status NcclBackend::close() {
  process_->drain(*group_);
  // A call that waits in NCCL is let go by this.
  const bool was_aborted =
      process_->leave(group_, {StatusCode::kAborted, "this rank closed its communicator"});
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (closed_.exchange(true)) return {};
  }
  process_->wait_for_end(*group_);
  if (!was_aborted && comm_ != nullptr) comm_->close(deadline_after(now_ns(), kCloseMs));
  process_->remove(group_.get());
  {
    const NcclProcess::Lock held = process_->lock();
    group_->end_trace();
  }
  const Status unheard = staged_->close();
  return group_->is_told() ? Status() : unheard;
}

Status NcclBackend::status() {
  if (closed_) return closed();
  const NcclProcess::Lock held = process_->lock();
  return group_->status();
}

}  // namespace ciuic::backend
