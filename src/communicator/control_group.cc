// SPDX-License-Identifier: Apache-2.0
// control_group.cc: the control thread, and lines over the channels of the join.

#include "communicator/control_group.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <optional>
#include <thread>

#include "base/fork.h"
#include "base/log.h"
#include "drivers/posix/limits.h"
#include "drivers/posix/poller.h"
#include "drivers/posix/unique_fd.h"

namespace ciuic::control {

namespace {

class ChannelLines final : public Lines {
 public:
  explicit ChannelLines(std::vector<std::unique_ptr<bootstrap::Channel>> channels)
      : channels_(std::move(channels)), lost_(channels_.size(), false) {}

  void send(int rank, const Message& message) override {
    if (!lost_[rank]) channels_[rank]->send(encode(message));
  }

  bool receive(int rank, Message* message) override {
    if (channels_[rank] == nullptr) return false;
    std::string frame;
    if (!channels_[rank]->receive(&frame)) {
      progress(rank);
      if (!channels_[rank]->receive(&frame)) return false;
    }
    Result<Message> taken = decode_message(frame);
    if (!taken.ok()) {  // who has the secret and talks nonsense is another version, or broken
      lost_[rank] = true;
      return false;
    }
    *message = std::move(*taken);
    return true;
  }

  bool is_lost(int rank) override { return lost_[rank]; }

  void flush() {
    for (size_t rank = 0; rank < channels_.size(); ++rank) {
      if (channels_[rank] != nullptr && !channels_[rank]->flushed()) progress(rank);
    }
  }

  bool flushed() const {
    for (size_t rank = 0; rank < channels_.size(); ++rank) {
      if (channels_[rank] != nullptr && !lost_[rank] && !channels_[rank]->flushed()) return false;
    }
    return true;
  }

  void add_to(std::vector<pollfd>* fds) const {
    for (size_t rank = 0; rank < channels_.size(); ++rank) {
      if (channels_[rank] == nullptr || lost_[rank]) continue;
      fds->push_back({channels_[rank]->fd(), channels_[rank]->events(), 0});
    }
  }

 private:
  void progress(size_t rank) {
    if (!lost_[rank] && !channels_[rank]->progress().ok()) lost_[rank] = true;
  }

  std::vector<std::unique_ptr<bootstrap::Channel>> channels_;
  std::vector<bool> lost_;
};

}  // namespace

struct ControlGroup::Driven {
  Driven(Settings with, std::vector<std::unique_ptr<bootstrap::Channel>> channels)
      : settings(std::move(with)), lines(std::move(channels)) {}

  // Guarded by the thread's mutex.
  Settings settings;
  ChannelLines lines;
  std::optional<Node> node;
  uint32_t made_in = fork_generation();

  std::mutex inbox_mutex;          // guards what follows; nothing else is locked under it
  std::shared_ptr<Thread> thread;  // null while not started, or left
  std::optional<engine::Cause> reported;
  posix::Poller* bell = nullptr;  // of the thread; null while not started, or left

  void step(TimeNs now) {
    std::optional<engine::Cause> cause;
    {
      std::lock_guard<std::mutex> lock(inbox_mutex);
      cause.swap(reported);
    }
    if (cause) node->report(*cause, now);
    node->step(now);
    lines.flush();
  }
  bool is_over() const { return node->is_over() && lines.flushed(); }
};

// The process's control thread. It exists while a group is driven.
class Thread : public std::enable_shared_from_this<Thread> {
 public:
  static Result<std::shared_ptr<Thread>> of_process();

  explicit Thread(std::unique_ptr<posix::Poller> bell) : bell_(std::move(bell)) {}

  posix::Poller* bell() { return bell_.get(); }
  std::mutex& mutex() { return mutex_; }

  Status add(const std::shared_ptr<ControlGroup::Driven>& driven) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!running_) CIUIC_RETURN_IF_ERROR(start());
    driven_.push_back(driven);
    bell_->ring();
    return {};
  }

  // To be called once the group has left: gives it up where nothing is left to do.
  void settle(const ControlGroup::Driven* driven) {
    std::thread ended;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (driven->is_over()) erase(driven);
      if (driven_.empty() && running_) {
        running_ = false;
        ++run_;
        ended.swap(thread_);
      }
      bell_->ring();
    }
    if (ended.joinable()) ended.join();
  }

 private:
  Status start() {
    running_ = true;
    ++run_;
    // Signals are for the program's own threads: a blocking call there shall be interrupted.
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    auto made = posix::start_thread([self = shared_from_this(), run = run_] { self->run(run); });
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    if (!made.ok()) {
      running_ = false;
      return made.status();
    }
    thread_ = std::move(*made);
    pthread_setname_np(thread_.native_handle(), "ciuic-control");
    return {};
  }

  void erase(const ControlGroup::Driven* driven) {
    std::erase_if(driven_, [driven](const auto& held) { return held.get() == driven; });
  }

  void run(uint64_t number) {
    std::vector<pollfd> fds;
    while (true) {
      TimeNs next = kNever;
      fds.assign(1, {bell_->doorbell_fd(), POLLIN, 0});
      {
        std::lock_guard<std::mutex> lock(mutex_);
        if (number != run_) return;
        const TimeNs now = now_ns();
        for (const auto& driven : driven_) driven->step(now);
        std::erase_if(driven_, [](const auto& driven) { return driven->is_over(); });
        if (driven_.empty()) {
          running_ = false;
          thread_.detach();  // nobody waits for it
          return;
        }
        for (const auto& driven : driven_) {
          next = std::min(next, driven->node->next_step());
          driven->lines.add_to(&fds);
        }
      }
      const Status waited = bootstrap::wait_for_any(&fds, next);
      if (!waited.ok()) log_warn("the control thread cannot wait: {}", waited.message());
      bell_->poll(0);
    }
  }

  std::unique_ptr<posix::Poller> bell_;
  std::mutex mutex_;  // guards all that follows, and each Driven's node and lines
  std::vector<std::shared_ptr<ControlGroup::Driven>> driven_;
  bool running_ = false;
  uint64_t run_ = 0;  // number of the thread that is to run
  std::thread thread_;
};

Result<std::shared_ptr<Thread>> Thread::of_process() {
  // Never destroyed: a hub may go on until the process ends, and its thread with it.
  struct Shared {
    std::mutex mutex;
    std::shared_ptr<Thread> thread;
    uint32_t made_in = 0;
  };
  static auto* shared = new Shared();
  static uint32_t made_in = fork_generation();
  if (made_in != fork_generation()) {
    // The parent's thread is not here, and its locks may be held for ever.
    shared = new Shared();
    made_in = fork_generation();
  }
  std::lock_guard<std::mutex> lock(shared->mutex);
  if (shared->thread == nullptr) {
    auto bell = posix::Poller::create();
    if (!bell.ok()) return bell.status();
    shared->thread = std::make_shared<Thread>(std::move(*bell));
  }
  return shared->thread;
}

ControlGroup::ControlGroup(Settings settings,
                           std::vector<std::unique_ptr<bootstrap::Channel>> channels)
    : driven_(std::make_shared<Driven>(std::move(settings), std::move(channels))) {}

ControlGroup::~ControlGroup() {
  if (driven_->made_in == fork_generation()) {
    leave();
    return;
  }
  // In a forked child nothing of the parent's is touched, and nothing is destroyed.
  [[maybe_unused]] auto* left_alone = new std::shared_ptr<Driven>(std::move(driven_));
}

Status ControlGroup::start(engine::DataPath* data_path) {
  Result<std::shared_ptr<Thread>> thread = Thread::of_process();
  if (!thread.ok()) return thread.status();
  driven_->node.emplace(driven_->settings, &driven_->lines, data_path, now_ns());
  {
    std::lock_guard<std::mutex> lock(driven_->inbox_mutex);
    driven_->bell = (*thread)->bell();
  }
  CIUIC_RETURN_IF_ERROR((*thread)->add(driven_));
  std::lock_guard<std::mutex> lock(driven_->inbox_mutex);
  driven_->thread = *thread;
  return {};
}

void ControlGroup::report(const engine::Cause& cause) {
  std::lock_guard<std::mutex> lock(driven_->inbox_mutex);
  if (!driven_->reported) driven_->reported = cause;
  if (driven_->bell != nullptr) driven_->bell->ring();
}

void ControlGroup::leave() {
  std::shared_ptr<Thread> thread;
  {
    std::lock_guard<std::mutex> lock(driven_->inbox_mutex);
    thread.swap(driven_->thread);
  }
  if (thread == nullptr) return;
  {
    std::lock_guard<std::mutex> lock(thread->mutex());
    driven_->node->leave(now_ns());
    driven_->lines.flush();
  }
  thread->settle(driven_.get());
}

std::vector<bool> ControlGroup::gone() const {
  std::shared_ptr<Thread> thread;
  {
    std::lock_guard<std::mutex> lock(driven_->inbox_mutex);
    thread = driven_->thread;
  }
  if (thread == nullptr) return {};
  std::lock_guard<std::mutex> lock(thread->mutex());
  driven_->step(now_ns());  // what the others have said counts
  return driven_->node->gone();
}

}  // namespace ciuic::control
