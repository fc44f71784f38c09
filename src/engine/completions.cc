// SPDX-License-Identifier: Apache-2.0
// completions.cc: a queue of functions, and the threads that take from it.

#include "engine/completions.h"

#include <condition_variable>
#include <deque>
#include <mutex>

#include "base/log.h"
#include "drivers/posix/limits.h"

namespace ciuic::engine {

static constexpr size_t kThreads = 4;

struct Completions::Queue {
  std::mutex mutex;
  std::condition_variable there;
  std::deque<std::function<void()>> functions;
  size_t idle = 0;
  bool closing = false;

  void run() {
    std::unique_lock<std::mutex> lock(mutex);
    while (true) {
      ++idle;
      there.wait(lock, [this] { return closing || !functions.empty(); });
      --idle;
      if (functions.empty()) return;
      std::function<void()> fn = std::move(functions.front());
      functions.pop_front();
      lock.unlock();
      fn();
      fn = nullptr;  // it may hold the last Work
      lock.lock();
    }
  }
};

Completions::Completions() : queue_(std::make_shared<Queue>()) {}

Completions::~Completions() {
  {
    std::lock_guard<std::mutex> lock(queue_->mutex);
    queue_->closing = true;
    queue_->there.notify_all();
  }
  for (std::thread& thread : threads_) {
    // The last Work may have been dropped by a function, on one of these threads.
    if (thread.get_id() == std::this_thread::get_id()) {
      thread.detach();
    } else {
      thread.join();
    }
  }
}

void Completions::call(std::function<void()> fn) {
  std::lock_guard<std::mutex> lock(queue_->mutex);
  queue_->functions.push_back(std::move(fn));
  if (queue_->idle < queue_->functions.size() && threads_.size() < kThreads) {
    auto thread = posix::start_thread([queue = queue_] { queue->run(); });
    if (thread.ok()) {
      threads_.push_back(std::move(*thread));
    } else if (threads_.empty()) {  // it is tried again with the next one
      log_warn("a function given to on_done() waits: {}", thread.status().message());
    }
  }
  queue_->there.notify_one();
}

}  // namespace ciuic::engine
