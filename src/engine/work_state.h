// SPDX-License-Identifier: Apache-2.0
// work_state.h: what a Work refers to: whether an operation has ended, how, and who wants to know.
//
// Counted references; the engine holds one until the operation has ended. finish() is called by
// the thread that steps the engine; everything else by any thread.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "base/clock.h"
#include "ciuic/options.h"
#include "ciuic/status.h"

namespace ciuic::engine {

class WorkState;

// Who makes operations progress for a waiting caller (driver.h). The simulator has none.
class WorkDriver {
 public:
  virtual ~WorkDriver() = default;

  // Blocks until `work` has ended, or `deadline`. Returns whether it has ended.
  virtual bool wait(WorkState* work, TimeNs deadline) = 0;

  // Lets the engine take one step, if nobody else is at it.
  virtual void nudge() = 0;

  // Calls `fn` on a thread for completions.
  virtual void complete(std::function<void()> fn) = 0;

  // Something that the engine waits for has happened elsewhere: a gate was opened, a Work has ended
  // that is not an operation's. Any thread, at any time; takes no lock.
  virtual void wake() = 0;

  // To be called where the end of an operation is wanted by somebody who is not in wait().
  virtual void hurry() {}

  // In a child that was forked from the process of the driver: nothing moves there.
  virtual bool is_of_parent() const = 0;
};

// How a stream of a device is made to wait for a result.
class StreamOrder {
 public:
  virtual ~StreamOrder() = default;

  // As Work::wait_on() has it. `work` is the one that this belongs to.
  virtual Status wait_on(WorkState* work, const Stream& stream, int64_t timeout_ms) = 0;

  // Whether all is known of the operation that the host can know, though the device is at it still.
  virtual bool has_arrived() const { return false; }
};

class WorkState {
 public:
  // `parts`: operations that must end before it has; an error of one is its own.
  explicit WorkState(std::shared_ptr<WorkDriver> driver = nullptr, int parts = 1)
      : parts_(parts), driver_(std::move(driver)) {}

  void retain() { references_.fetch_add(1, std::memory_order_relaxed); }
  void release() {
    if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }

  bool done() const { return done_.load(std::memory_order_acquire); }
  const Status& status() const { return status_; }  // only once done()
  WorkDriver* driver() const { return driver_.get(); }

  void finish(Status status);  // once for each part

  // Of a receive: whose message it was, with which tag. Before finish(), and read only once done().
  void came_from(int source, int tag) {
    source_ = source;
    tag_ = tag;
  }
  int source() const { return source_; }
  int tag() const { return tag_; }

  // Of tensors on a device. To be set before anybody else has the Work.
  void set_order(std::unique_ptr<StreamOrder> order) { order_ = std::move(order); }
  StreamOrder* order() const { return order_.get(); }

  // A stream was made to wait for the result: whoever goes on in it finds it.
  void set_ordered() { ordered_.store(true, std::memory_order_release); }
  bool is_ordered() const { return ordered_.load(std::memory_order_acquire); }

  void on_done(std::function<void(const Status&)> fn);

  // The same, on the thread that ends it, which holds the lock of what carries it out: `fn` only
  // notes that it has. At once where it has ended. There may be one.
  void note_done(std::function<void(const Status&)> fn);

 private:
  ~WorkState() = default;

  std::atomic<int> references_{1};
  std::atomic<bool> done_{false};
  std::atomic<bool> ordered_{false};
  int parts_;
  int source_ = -1;
  int tag_ = -1;
  Status status_;
  std::shared_ptr<WorkDriver> driver_;
  std::unique_ptr<StreamOrder> order_;
  std::mutex mutex_;  // guards callbacks_, and done_ against them
  std::vector<std::function<void(const Status&)>> callbacks_;
  std::function<void(const Status&)> note_;
};

}  // namespace ciuic::engine
