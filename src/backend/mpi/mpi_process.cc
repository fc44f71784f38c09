// SPDX-License-Identifier: Apache-2.0
// mpi_process.cc: MPI's start and end, its communicators, and who calls it.

#include "backend/mpi/mpi_process.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <utility>

#include "base/log.h"
#include "drivers/posix/limits.h"

namespace ciuic::backend {

static constexpr TimeNs kSpinNs = 200'000;
static constexpr TimeNs kYieldNs = 10'000'000;
static constexpr std::chrono::microseconds kSleep{50};

// How often a thread that drives yields to others that want the lock, before it takes it again.
static constexpr int kMostTurns = 100;

static std::shared_ptr<MpiProcess>& of_process() {
  static auto* process = new std::shared_ptr<MpiProcess>();  // not destroyed: MPI ends with exit()
  return *process;
}

Result<std::shared_ptr<MpiProcess>> MpiProcess::of(const MpiOptions& options,
                                                   const std::string& library) {
  static std::mutex mutex;
  std::lock_guard<std::mutex> lock(mutex);
  std::vector<std::string> paths = options.libraries;
  if (!library.empty()) paths.insert(paths.begin(), library);
  if (paths.empty()) paths.emplace_back("libmpi_abi.so.1");
  std::shared_ptr<MpiProcess>& process = of_process();
  if (process != nullptr && !process->is_of_parent()) {
    if (std::find(paths.begin(), paths.end(), process->library_.path) != paths.end()) {
      return process;
    }
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("this process uses the MPI library {} already, and not {}; a process "
                              "can have one MPI",
                              process->library_.path, paths.front()));
  }
  if (process != nullptr) {
    return Status(StatusCode::kClosed,
                  "this process was forked from one that uses MPI, and cannot use it");
  }
  Result<mpi::Library> opened = mpi::open_mpi(paths, options.constants);
  if (!opened.ok()) return opened.status();
  Result<std::shared_ptr<MpiProcess>> made = make(std::move(*opened));
  if (!made.ok()) return made;
  process = *made;
  if (std::atexit(leave_all) != 0) log_warn("backend mpi: MPI cannot be finalised at exit");
  return made;
}

Result<std::shared_ptr<MpiProcess>> MpiProcess::make(mpi::Library library) {
  std::shared_ptr<MpiProcess> process(new MpiProcess(std::move(library)));
  CIUIC_RETURN_IF_ERROR(process->initialise());
  return process;
}

Status MpiProcess::error(const char* what, int code) const {
  return {StatusCode::kSystem,
          fmt::format("{}: {} ({})", what, mpi::error_text(library_.functions, code), version_)};
}

Status MpiProcess::initialise() {
  const mpi::Functions& call = library_.functions;
  version_ = mpi::version_text(call);
  int finalized = 0;
  int initialized = 0;
  int code = call.finalized(&finalized);
  if (code == mpi::kSuccess) code = call.initialized(&initialized);
  if (code != mpi::kSuccess) return error("MPI_Initialized", code);
  if (finalized != 0) {
    return {StatusCode::kUnavailable,
            "MPI was finalised in this process, and cannot be used any more"};
  }
  if (initialized != 0) {
    code = call.query_thread(&thread_level_);
  } else {
    code = call.init_thread(nullptr, nullptr, library_.constants.thread_multiple, &thread_level_);
    initialised_here_ = code == mpi::kSuccess;
  }
  if (code != mpi::kSuccess) return error("MPI_Init_thread", code);
  void* largest_tag = nullptr;
  int has_it = 0;
  code = call.comm_get_attr(library_.constants.comm_world, library_.constants.tag_ub, &largest_tag,
                            &has_it);
  if (code == mpi::kSuccess && has_it != 0) largest_tag_ = *static_cast<int*>(largest_tag);
  return {};
}

const char* MpiProcess::thread_level() const {
  if (thread_level_ >= library_.constants.thread_multiple) return "multiple";
  return thread_level_ >= library_.constants.thread_serialized ? "serialized" : "funneled";
}

Status MpiProcess::check_thread() const {
  if (thread_level_ >= library_.constants.thread_serialized) return {};
  int is_main = 0;
  if (library_.functions.is_thread_main(&is_main) == mpi::kSuccess && is_main != 0) return {};
  return {StatusCode::kUnsupported,
          "MPI was initialised by this program for one thread alone, and this is another one; ask "
          "MPI_Init_thread for MPI_THREAD_MULTIPLE, or call from the thread that initialised MPI"};
}

Result<int> MpiProcess::size_of(mpi::Handle communicator) {
  if (communicator == 0) communicator = library_.constants.comm_world;
  int size = 0;
  const int code = library_.functions.comm_size(communicator, &size);
  return code == mpi::kSuccess ? Result<int>(size) : Result<int>(error("MPI_Comm_size", code));
}

Result<int> MpiProcess::rank_in(mpi::Handle communicator) {
  int rank = 0;
  const int code = library_.functions.comm_rank(communicator, &rank);
  return code == mpi::kSuccess ? Result<int>(rank) : Result<int>(error("MPI_Comm_rank", code));
}

// Waits for a request that is none of a group's.
Status MpiProcess::run(mpi::Handle request, TimeNs deadline, const char* what) {
  while (true) {
    int has_ended = 0;
    alignas(16) std::byte status[mpi::kMostStatusBytes];
    {
      Lock held = lock();
      const int code = library_.functions.test(&request, &has_ended, status);
      if (code != mpi::kSuccess) return error(what, code);
    }
    if (has_ended != 0) return {};
    if (now_ns() >= deadline) break;
    std::this_thread::sleep_for(kSleep);
  }
  abandon();
  return {StatusCode::kTimeout,
          fmt::format("{} did not end in time: not all ranks of the MPI communicator make this "
                      "context (MPI does not tell which)",
                      what)};
}

// Errors come as return codes, not as the end of the job.
Result<mpi::Handle> MpiProcess::adopt(mpi::Handle communicator, int code, const char* what) {
  if (code == mpi::kSuccess) {
    code = library_.functions.comm_set_errhandler(communicator, library_.constants.errors_return);
  }
  if (code != mpi::kSuccess) return error(what, code);
  return communicator;
}

Result<mpi::Handle> MpiProcess::duplicate_of(mpi::Handle communicator, TimeNs deadline) {
  const bool is_world = communicator == 0;
  if (is_world) communicator = library_.constants.comm_world;
  CIUIC_RETURN_IF_ERROR(check_thread());
  auto made = std::make_unique<mpi::Handle>(0);
  mpi::Handle request = 0;
  {
    Lock held = lock();
    if (is_world && own_world_ != 0) return own_world_;
    const int code = library_.functions.comm_idup(communicator, made.get(), &request);
    if (code != mpi::kSuccess) return error("MPI_Comm_idup", code);
  }
  const Status status = run(request, deadline, "MPI_Comm_idup");
  if (!status.ok()) {
    (void)made.release();  // MPI may still write it
    return status;
  }
  Lock held = lock();
  Result<mpi::Handle> duplicate = adopt(*made, mpi::kSuccess, "MPI_Comm_set_errhandler");
  if (duplicate.ok() && is_world) own_world_ = *duplicate;
  return duplicate;
}

Result<std::string> MpiProcess::broadcast(mpi::Handle communicator, const std::string* value,
                                          TimeNs deadline) {
  static constexpr int64_t kMostBytes = int64_t{1} << 24;
  CIUIC_RETURN_IF_ERROR(check_thread());
  struct Message {
    int64_t bytes = 0;
    std::string text;
  };
  auto message = std::make_unique<Message>();
  if (value != nullptr) *message = {static_cast<int64_t>(value->size()), *value};
  const auto give = [&](void* data, size_t bytes) -> Status {
    mpi::Handle request = 0;
    {
      Lock held = lock();
      const int code = library_.functions.ibcast(
          data, static_cast<int>(bytes), library_.constants.byte, 0, communicator, &request);
      if (code != mpi::kSuccess) return error("MPI_Ibcast", code);
    }
    return run(request, deadline, "MPI_Ibcast");
  };
  Status status = give(&message->bytes, sizeof message->bytes);
  if (status.ok() && (message->bytes < 0 || message->bytes > kMostBytes)) {
    status = {StatusCode::kMismatch,
              "the ranks of the MPI communicator do not make the same group"};
  }
  if (status.ok()) {
    message->text.resize(static_cast<size_t>(message->bytes));
    status = give(message->text.data(), message->text.size());
  }
  if (status.ok()) return std::move(message->text);
  (void)message.release();  // MPI may still write it
  return status;
}

// Blocking calls of MPI progress what else is under way; at MULTIPLE others may test meanwhile.
Result<mpi::Handle> MpiProcess::reordered(mpi::Handle communicator, int rank) {
  CIUIC_RETURN_IF_ERROR(check_thread());
  Lock held = lock();
  if (thread_level_ >= library_.constants.thread_multiple) held.unlock();
  mpi::Handle made = 0;
  const int code = library_.functions.comm_split(communicator, 0, rank, &made);
  return adopt(made, code, "MPI_Comm_split");
}

Result<mpi::Handle> MpiProcess::part_of(mpi::Handle communicator, std::span<const int> ranks,
                                        int tag) {
  CIUIC_RETURN_IF_ERROR(check_thread());
  const mpi::Functions& call = library_.functions;
  Lock held = lock();
  if (thread_level_ >= library_.constants.thread_multiple) held.unlock();
  mpi::Handle all = 0;
  mpi::Handle some = 0;
  mpi::Handle made = 0;
  int code = call.comm_group(communicator, &all);
  if (code != mpi::kSuccess) return error("MPI_Comm_group", code);
  code = call.group_incl(all, static_cast<int>(ranks.size()), ranks.data(), &some);
  (void)call.group_free(&all);
  if (code != mpi::kSuccess) return error("MPI_Group_incl", code);
  code = call.comm_create_group(communicator, some, tag % std::min(largest_tag_, 32767), &made);
  (void)call.group_free(&some);
  return adopt(made, code, "MPI_Comm_create_group");
}

void MpiProcess::free(mpi::Handle communicator) {
  if (is_of_parent() || !check_thread().ok()) return;
  Lock held = lock();
  int finalized = 1;
  if (library_.functions.finalized(&finalized) != mpi::kSuccess || finalized != 0) return;
  (void)library_.functions.comm_free(&communicator);
}

MpiProcess::Lock MpiProcess::lock() {
  contenders_.fetch_add(1, std::memory_order_relaxed);
  Lock held(mutex_);
  contenders_.fetch_sub(1, std::memory_order_relaxed);
  return held;
}

void MpiProcess::add(MpiGroup* group) { groups_.push_back(group); }

void MpiProcess::remove(MpiGroup* group) {
  std::thread ended;
  {
    Lock held = lock();
    std::erase(groups_, group);
    if (groups_.empty() && background_.joinable()) {
      closing_ = true;
      parked_.notify_all();
      ended.swap(background_);
    }
  }
  if (ended.joinable()) ended.join();
}

void MpiProcess::watch() {
  if (thread_level_ < library_.constants.thread_multiple) return;
  if (!background_.joinable()) {
    closing_ = false;
    auto started = posix::start_thread([this] { run_background(); });
    if (started.ok()) background_ = std::move(*started);
  }
  parked_.notify_all();
}

bool MpiProcess::step(TimeNs now) {
  bool moved = false;
  for (MpiGroup* group : groups_) moved |= group->step(now);
  return moved;
}

bool MpiProcess::is_busy() const {
  return std::any_of(groups_.begin(), groups_.end(),
                     [](const MpiGroup* group) { return group->is_busy(); });
}

bool MpiProcess::oversubscribed() const {
  return std::any_of(groups_.begin(), groups_.end(),
                     [](const MpiGroup* group) { return group->oversubscribed(); });
}

bool MpiProcess::wait(engine::WorkState* work, TimeNs deadline) {
  if (is_of_parent()) return false;
  const bool may_call = check_thread().ok();
  Lock held = lock();
  ++callers_;
  const bool yields = oversubscribed();
  TimeNs now = now_ns();
  TimeNs idle_since = now;
  while (!work->done() && now < deadline) {
    if (may_call && step(now)) idle_since = now;
    if (work->done()) break;
    held.unlock();
    const TimeNs idle = now - idle_since;
    if (!may_call || idle > kYieldNs) {
      std::this_thread::sleep_for(kSleep);
    } else if (yields || idle > kSpinNs) {
      ::sched_yield();
    }
    for (int i = 0; i < kMostTurns && contenders_.load(std::memory_order_relaxed) > 0; ++i) {
      ::sched_yield();
    }
    held.lock();
    now = now_ns();
  }
  --callers_;
  if (callers_ == 0 && background_.joinable() && is_busy()) parked_.notify_all();
  return work->done();
}

void MpiProcess::nudge() {
  if (is_of_parent() || !check_thread().ok()) return;
  Lock held(mutex_, std::try_to_lock);
  if (held.owns_lock()) step(now_ns());
}

void MpiProcess::run_background() {
  Lock held = lock();
  while (!closing_) {
    if (callers_ > 0 || !is_busy()) {
      parked_.wait(held);
      continue;
    }
    if (step(now_ns())) continue;
    held.unlock();
    std::this_thread::sleep_for(kSleep);
    held.lock();
  }
}

void MpiProcess::leave() {
  if (is_of_parent()) return;
  const mpi::Functions& call = library_.functions;
  {
    Lock held = lock();
    if (std::exchange(has_left_, true)) return;
  }
  int finalized = 1;
  if (call.finalized(&finalized) != mpi::kSuccess || finalized != 0) return;
  if (abandoned_) {
    log_warn(
        "an operation of this process has failed in MPI, which would wait for it: the MPI job "
        "is ended");
    (void)call.abort(library_.constants.comm_world, EXIT_FAILURE);
  } else if (initialised_here_) {
    (void)call.finalize();
  }
}

void MpiProcess::leave_all() {
  if (of_process() != nullptr) of_process()->leave();
}

}  // namespace ciuic::backend
