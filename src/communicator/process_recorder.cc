// SPDX-License-Identifier: Apache-2.0
// process_recorder.cc: memory of the launcher's or our own, and the thread that writes dumps.

#include "communicator/process_recorder.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "base/assert.h"
#include "base/fork.h"
#include "base/log.h"
#include "bootstrap/environment.h"
#include "ciuic/version.h"
#include "drivers/posix/memfd.h"
#include "drivers/posix/process.h"
#include "trace/dump.h"

namespace ciuic {

namespace {

// A file system that hangs must not hold up the process's end for longer.
constexpr std::chrono::seconds kLongestDump{2};

// Writes dumps on a thread of its own: who finds a failure holds locks that others wait for.
class Dumper : public std::enable_shared_from_this<Dumper> {
 public:
  Dumper(std::shared_ptr<trace::Recorder> recorder, std::string directory)
      : recorder_(std::move(recorder)), directory_(std::move(directory)) {}

  void ask() {
    std::lock_guard<std::mutex> lock(mutex_);
    asked_ = true;
    if (std::exchange(running_, true)) return;
    std::thread([self = shared_from_this()] { self->run(); }).detach();
  }

  // Until what was asked for is written, or kLongestDump.
  void settle() {
    std::unique_lock<std::mutex> lock(mutex_);
    idle_.wait_for(lock, kLongestDump, [this] { return !running_; });
  }

  static void write(trace::Recorder& recorder, const std::string& directory) {
    const std::string snapshot = recorder.snapshot();
    const auto path = trace::write_dump(directory, std::as_bytes(std::span(snapshot)));
    if (path.ok()) {
      log_info("the flight recorder was written to {}", *path);
    } else {
      log_warn("the flight recorder was not written: {}", path.status().message());
    }
  }

 private:
  void run() {
    std::unique_lock<std::mutex> lock(mutex_);
    while (std::exchange(asked_, false)) {
      lock.unlock();
      write(*recorder_, directory_);
      lock.lock();
    }
    running_ = false;
    idle_.notify_all();
  }

  const std::shared_ptr<trace::Recorder> recorder_;
  const std::string directory_;
  std::mutex mutex_;
  std::condition_variable idle_;
  bool asked_ = false;
  bool running_ = false;
};

// All that a process has for its recorder. Never destroyed: groups may still write to it while the
// process ends.
struct Kept {
  posix::UniqueFd memory;
  posix::Mapping mapping;
  std::shared_ptr<trace::Recorder> recorder;
  std::shared_ptr<Dumper> dumper;
  std::string directory;
  Kept* of_parent = nullptr;  // before the fork
};

}  // namespace

static bool is_alive(uint64_t pid) {
  return pid <= INT32_MAX && (kill(static_cast<pid_t>(pid), 0) == 0 || errno != ESRCH);
}

// The launcher's memory, unless another process of this rank's writes to it.
static bool adopt(int64_t fd, size_t bytes, Kept* kept) {
  if (fd < 0 || !posix::check_sealed(static_cast<int>(fd), bytes).ok()) return false;
  posix::close_on_exec(static_cast<int>(fd));  // it is for this process, not for what it starts
  auto mapping = posix::Mapping::map(static_cast<int>(fd), bytes, /*writable=*/true);
  if (!mapping.ok()) return false;
  auto* header = reinterpret_cast<trace::Header*>(mapping->data());
  const auto self = static_cast<uint64_t>(getpid());
  std::atomic_ref<uint64_t> owner(header->owner);
  uint64_t before = owner.load();
  if (before != 0 && before != self && is_alive(before)) return false;
  if (!owner.compare_exchange_strong(before, self)) return false;
  kept->mapping = std::move(*mapping);
  return true;
}

static Status make_memory(size_t bytes, Kept* kept) {
  auto memory = posix::create_memfd(kTraceMemoryName, bytes);
  if (!memory.ok()) return memory.status();
  auto mapping = posix::Mapping::map(memory->get(), bytes, /*writable=*/true);
  if (!mapping.ok()) return mapping.status();
  kept->memory = std::move(*memory);
  kept->memory.close_in_children();
  kept->mapping = std::move(*mapping);
  return {};
}

static Status make_recorder(const Config& config, const topology::Host& host, Kept* kept) {
  const size_t bytes =
      trace::bytes_for(trace::events_for(static_cast<uint64_t>(config.trace_events)));
  if (!adopt(config.trace_fd, bytes, kept)) CIUIC_RETURN_IF_ERROR(make_memory(bytes, kept));
  trace::RecorderOptions options{
      .pid = host.pid, .start_ticks = host.start_ticks, .host = host.name, .library = version()};
  auto launched = bootstrap::read_launcher(environment_variable);
  if (launched.ok()) {
    options.launch_rank = launched->rank;
    options.launch_size = launched->size;
  }
  auto boot = posix::boot_id();
  if (boot.ok()) options.boot_id = *boot;
  auto made = trace::Recorder::create({kept->mapping.data(), bytes}, options);
  if (!made.ok()) return made.status();
  kept->recorder = std::move(*made);
  return {};
}

// What a process keeps; at its end a dump that is being written is waited for.
struct OfProcess {
  std::mutex mutex;
  Kept* kept = nullptr;  // null until the first group
  uint32_t made_in = 0;  // fork_generation()

  ~OfProcess() {
    if (kept != nullptr && made_in == fork_generation() && kept->dumper != nullptr) {
      kept->dumper->settle();
    }
  }
};

static OfProcess& of_process() {
  static OfProcess one;
  return one;
}

static void save_before_abort() {
  std::unique_lock<std::mutex> lock(of_process().mutex, std::try_to_lock);
  const Kept* kept = lock.owns_lock() ? of_process().kept : nullptr;
  if (kept != nullptr && !kept->directory.empty()) {
    Dumper::write(*kept->recorder, kept->directory);
  }
}

// Where the first group's settings, or later ones', want dumps.
static void write_dumps_to(const std::string& directory, Kept* kept) {
  if (kept->directory == directory) return;
  kept->directory = directory;
  kept->dumper = directory.empty() ? nullptr : std::make_shared<Dumper>(kept->recorder, directory);
  kept->recorder->on_failure(kept->dumper == nullptr ? std::function<void()>()
                                                     : [dumper = kept->dumper] { dumper->ask(); });
  on_assertion_failure(save_before_abort);
}

std::shared_ptr<trace::Recorder> process_recorder(const Config& config,
                                                  const topology::Host& host) {
  if (config.trace_events == 0) return nullptr;
  OfProcess& process = of_process();
  std::lock_guard<std::mutex> lock(process.mutex);
  const bool is_ours = process.kept != nullptr && process.made_in == fork_generation();
  if (!is_ours) {
    auto made = std::make_unique<Kept>();
    const Status status = make_recorder(config, host, made.get());
    if (!status.ok()) {
      log_warn("there is no flight recorder: {}", status.message());
      return nullptr;
    }
    made->of_parent = process.kept;
    process.kept = made.release();
    process.made_in = fork_generation();
  }
  write_dumps_to(config.trace_dir, process.kept);
  return process.kept->recorder;
}

trace::GroupRecorder record_group(const Config& config, const topology::Host& host,
                                  const trace::GroupInfo& group) {
  const auto recorder = process_recorder(config, host);
  return recorder == nullptr ? trace::GroupRecorder() : recorder->join(group);
}

}  // namespace ciuic
