// SPDX-License-Identifier: Apache-2.0
// work_state.cc: the end of an operation, and Work on top of it.

#include "engine/work_state.h"

#include "ciuic/work.h"

namespace ciuic::engine {

void WorkState::finish(Status status) {
  std::vector<std::function<void(const Status&)>> callbacks;
  std::function<void(const Status&)> note;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (status_.ok()) status_ = std::move(status);
    if (--parts_ > 0) return;
    done_.store(true, std::memory_order_release);
    callbacks.swap(callbacks_);
    note.swap(note_);
  }
  if (note) note(status_);
  for (auto& fn : callbacks) {
    if (driver_ == nullptr) {
      fn(status_);
      continue;
    }
    retain();
    driver_->complete([this, fn = std::move(fn)] {
      fn(status_);
      release();
    });
  }
}

void WorkState::note_done(std::function<void(const Status&)> fn) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!done()) {
      note_ = std::move(fn);
      return;
    }
  }
  fn(status_);
}

void WorkState::on_done(std::function<void(const Status&)> fn) {
  {
    std::unique_lock<std::mutex> lock(mutex_);
    if (done()) {
      lock.unlock();
      return fn(status_);
    }
    callbacks_.push_back(std::move(fn));
  }
  if (driver_ != nullptr) driver_->hurry();
}

}  // namespace ciuic::engine

namespace ciuic {

Work::Work(const Work& other) : state_(other.state_) {
  if (state_ != nullptr) state_->retain();
}

Work& Work::operator=(Work other) noexcept {
  std::swap(state_, other.state_);
  return *this;
}

Work::~Work() {
  if (state_ != nullptr) state_->release();
}

static Status forked() {
  return {StatusCode::kClosed,
          "wait: this process was forked from the one that called the operation, and cannot wait "
          "for it"};
}

Status Work::wait() {
  if (state_ == nullptr) return {};
  if (!state_->done() && !state_->driver()->wait(state_, kNever)) return forked();
  return state_->status();
}

Status Work::wait_for(int64_t timeout_ms) {
  if (state_ == nullptr) return {};
  if (!state_->done() && !state_->driver()->wait(state_, deadline_after(now_ns(), timeout_ms))) {
    if (state_->driver()->is_of_parent()) return forked();
    return {StatusCode::kTimeout, "waited " + std::to_string(timeout_ms) +
                                      " ms; the operation has not ended and goes on"};
  }
  return state_->status();
}

bool Work::done() {
  if (state_ == nullptr || state_->done()) return true;
  state_->driver()->nudge();
  return state_->done();
}

Status Work::status() const {
  return state_ != nullptr && state_->done() ? state_->status() : Status();
}

static bool has_arrived(const engine::WorkState* work) {
  if (work == nullptr) return false;
  return work->done() || (work->order() != nullptr && work->order()->has_arrived());
}

int Work::source() const { return has_arrived(state_) ? state_->source() : -1; }

int Work::tag() const { return has_arrived(state_) ? state_->tag() : -1; }

Status Work::wait_on(const Stream& stream, int64_t timeout_ms) {
  if (state_ != nullptr && state_->order() != nullptr) {
    Status status = state_->order()->wait_on(state_, stream, timeout_ms);
    if (status.ok()) state_->set_ordered();
    return status;
  }
  return timeout_ms < 0 ? wait() : wait_for(timeout_ms);
}

void Work::on_done(std::function<void(const Status&)> fn) {
  if (state_ == nullptr) return fn(Status());
  state_->on_done(std::move(fn));
}

}  // namespace ciuic
