// SPDX-License-Identifier: Apache-2.0
// nccl_process.cc: looking, waiting, aborting.

#include "backend/nccl/nccl_process.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/log.h"
#include "drivers/posix/limits.h"

namespace ciuic::backend {

static constexpr TimeNs kSpinNs = 100'000;
static constexpr std::chrono::microseconds kLeastSleep{20};
static constexpr std::chrono::microseconds kMostSleep{1000};
static constexpr std::chrono::seconds kWaitersLook{1};

Result<std::shared_ptr<NcclProcess>> NcclProcess::of(const std::string& cuda_library,
                                                     std::span<const std::string> nccl_libraries) {
  static std::mutex mutex;
  // Not destroyed: NCCL's own threads may run until the process ends.
  static auto* const made = new std::shared_ptr<NcclProcess>();
  std::lock_guard<std::mutex> lock(mutex);
  if (*made != nullptr) {
    if (!(*made)->is_of_parent()) return *made;
    return Status(StatusCode::kClosed,
                  "this process was forked from one that uses CUDA, and cannot use it; start "
                  "workers by spawn");
  }
  Result<const cuda::Library*> cuda = cuda::open_cuda(cuda_library);
  if (!cuda.ok()) return cuda.status();
  Result<const nccl::Library*> nccl = nccl::open_nccl(nccl_libraries);
  if (!nccl.ok()) return nccl.status();
  *made = std::make_shared<NcclProcess>(*cuda, *nccl);
  return *made;
}

NcclProcess::~NcclProcess() {
  if (!background_.joinable()) return;
  {
    const Lock held = lock();
    closing_ = true;
    parked_.notify_all();
  }
  background_.join();
}

void NcclProcess::add(std::shared_ptr<NcclGroup> group) {
  const Lock held = lock();
  groups_.push_back(std::move(group));
}

void NcclProcess::remove(const NcclGroup* group) {
  std::thread ended;
  {
    const Lock held = lock();
    std::erase_if(groups_, [group](const auto& each) { return each.get() == group; });
    if (groups_.empty() && background_.joinable()) {
      closing_ = true;
      parked_.notify_all();
      ended.swap(background_);
    }
  }
  if (ended.joinable()) ended.join();
}

void NcclProcess::watch() {
  if (!background_.joinable()) {
    closing_ = false;
    auto started = posix::start_thread([this] { run_background(); });
    if (!started.ok()) {  // who waits looks by himself
      log_warn("backend nccl: nobody looks at operations in the background: {}",
               started.status().message());
      return;
    }
    background_ = std::move(*started);
  }
  parked_.notify_all();
}

bool NcclProcess::is_busy() const {
  return std::any_of(groups_.begin(), groups_.end(),
                     [](const auto& group) { return group->is_busy(); });
}

// What is asked about one group.
struct NcclProcess::Probe {
  std::shared_ptr<NcclGroup> group;
  std::shared_ptr<NcclComm> comm;
  std::shared_ptr<NcclOperation> oldest;  // null: none is on the device
  NcclComm::State state;
  int code = cuda::kNotReady;
};

// Returns whether its oldest operation has ended. Without the lock, which it takes.
bool NcclProcess::probe(Probe* probe) {
  if (probe->comm != nullptr) {
    const cuda::DeviceScope scope(cuda_.functions, probe->comm->options().device);
    if (probe->oldest != nullptr) {
      probe->code = cuda_.functions.event_query(probe->oldest->end->event);
      // CUDA keeps also this answer, which a caller's kernel would then seem to have failed with.
      if (probe->code == cuda::kNotReady) (void)cuda_.functions.get_last_error();
    }
    if (probe->code == cuda::kNotReady) probe->state = probe->comm->look();
  }
  const TimeNs now = now_ns();
  Lock held = lock();
  NcclGroup& group = *probe->group;
  const bool was_busy = group.is_busy();
  if (probe->code == cuda::kSuccess) {
    group.finish(probe->oldest);
  } else if (probe->code != cuda::kNotReady) {
    probe->state.error = cuda::error_of(cuda_.functions, "the GPU's work", probe->code);
  }
  group.check_comm(probe->state, now);
  group.check(now);
  if (probe->code == cuda::kSuccess || (was_busy && !group.is_busy())) ended_.notify_all();
  probe->oldest = group.oldest_launched();
  if (group.wants_end()) {
    group.end(Status(group.status()), now);
    abort(probe->group, std::move(held));
  }
  return probe->code == cuda::kSuccess;
}

bool NcclProcess::look() {
  std::vector<Probe> probes;
  {
    const Lock held = lock();
    for (const std::shared_ptr<NcclGroup>& group : groups_) {
      if (!group->is_busy()) continue;
      probes.push_back(
          {.group = group, .comm = group->comm(), .oldest = group->oldest_launched(), .state = {}});
    }
  }
  bool moved = false;
  for (Probe& each : probes) {
    while (probe(&each)) {
      moved = true;
      each.code = cuda::kNotReady;
    }
  }
  return moved;
}

bool NcclProcess::wait(engine::WorkState* work, TimeNs deadline) {
  if (is_of_parent()) return false;
  const TimeNs began_at = now_ns();
  for (TimeNs now = began_at; !work->done() && now < deadline && now - began_at < kSpinNs;
       now = now_ns()) {
    if (!look()) ::sched_yield();
  }
  Lock held = lock();
  if (work->done()) return true;
  watch();
  while (!work->done()) {
    const TimeNs now = now_ns();
    if (now >= deadline) break;
    if (!background_.joinable()) {  // the system gave none
      held.unlock();
      look();
      std::this_thread::sleep_for(kLeastSleep);
      held.lock();
      continue;
    }
    // The background thread may be in a call that does not return.
    for (const std::shared_ptr<NcclGroup>& group : groups_) group->check(now);
    const std::chrono::nanoseconds left(deadline == kNever ? kNever : deadline - now);
    ended_.wait_for(held, std::min<std::chrono::nanoseconds>(left, kWaitersLook));
  }
  return work->done();
}

void NcclProcess::nudge() {
  if (!is_of_parent()) look();
}

void NcclProcess::run_background() {
  Lock held = lock();
  std::chrono::microseconds sleep = kLeastSleep;
  while (!closing_) {
    if (!is_busy()) {
      sleep = kLeastSleep;
      parked_.wait(held);
      continue;
    }
    held.unlock();
    const bool moved = look();
    held.lock();
    if (closing_) break;
    sleep = moved ? kLeastSleep : std::min(2 * sleep, kMostSleep);
    if (parked_.wait_for(held, sleep) == std::cv_status::no_timeout) sleep = kLeastSleep;
  }
}

void NcclProcess::end(const std::shared_ptr<NcclGroup>& group, const Status& status) {
  Lock held = lock();
  if (group->has_ended()) return;
  group->end(status, now_ns());
  abort(group, std::move(held));
}

void NcclProcess::drain(const NcclGroup& group) {
  Lock held = lock();
  while (group.is_awaited(now_ns())) {
    held.unlock();
    (void)look();
    held.lock();
    if (group.is_awaited(now_ns())) ended_.wait_for(held, kLeastSleep);
  }
}

bool NcclProcess::leave(const std::shared_ptr<NcclGroup>& group, const Status& status) {
  Lock held = lock();
  if (group->has_ended()) return true;
  const bool is_well = group->status().ok() && !group->is_busy();
  group->end(status, now_ns());
  if (!is_well) abort(group, std::move(held));
  return !is_well;
}

void NcclProcess::abort(const std::shared_ptr<NcclGroup>& group, Lock held) {
  const std::shared_ptr<NcclComm> comm = group->comm();
  if (comm == nullptr) {
    group->end_works();
    ended_.notify_all();
    return;
  }
  group->set_aborting(true);
  if (group->is_busy()) watch();
  held.unlock();
  const auto run = [self = shared_from_this(), group, comm] {
    comm->abort();
    const Lock lock_again = self->lock();
    group->set_aborting(false);
    group->end_works();
    self->ended_.notify_all();
  };
  auto started = posix::start_thread(run);
  if (started.ok()) {
    started->detach();
  } else {
    run();
  }
}

void NcclProcess::wait_for_end(const NcclGroup& group) {
  Lock held = lock();
  for (TimeNs now = now_ns(); group.is_ending(now); now = now_ns()) {
    for (const std::shared_ptr<NcclGroup>& each : groups_) each->check(now);
    ended_.wait_for(held, kMostSleep);
  }
}

Status NcclOrder::wait_on(engine::WorkState* work, const Stream& stream, int64_t /*timeout_ms*/) {
  if (process_->is_of_parent()) {
    return {StatusCode::kClosed,
            "wait: this process was forked from the one that called the operation"};
  }
  bool has_failed = false;
  {
    const NcclProcess::Lock held = process_->lock();
    has_failed = !work->done() && !group_->status().ok();
  }
  if (has_failed) process_->wait(work, kNever);  // until it is decided how
  if (work->done() && !work->status().ok()) return work->status();
  const cuda::Functions& cuda = process_->cuda().functions;
  const cuda::DeviceScope scope(cuda, stream.device_index >= 0 ? stream.device_index : device_);
  return cuda::error_of(cuda, "cudaStreamWaitEvent",
                        cuda.stream_wait_event(stream.handle, end_->event, 0));
}

}  // namespace ciuic::backend
