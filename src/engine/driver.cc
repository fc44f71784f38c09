// SPDX-License-Identifier: Apache-2.0
// driver.cc: spinning, watching and parking; the background thread and the threads for completions.

#include "engine/driver.h"

#include <sched.h>

#include <algorithm>
#include <chrono>

#include "drivers/posix/limits.h"
#include "drivers/posix/timer_fd.h"

namespace ciuic::engine {

static constexpr int64_t kSpinUs = 200;

// Yields with more ranks than cores: enough for a peer to take its turn. More of them hand whole
// time slices to strangers.
static constexpr uint32_t kYields = 100;

// Nor for longer than this: with strangers on the cores a yield costs their time slices, and a wait
// in short pieces, such as Python's, would do nothing else and never sleep.
static constexpr TimeNs kYieldNs = 1'000'000;

// Passes between two looks at the clock and at the sockets, each a system call: when spinning, and
// when every pass yields.
static constexpr uint32_t kPassesPerLook = 32;
static constexpr uint32_t kYieldsPerLook = 8;

// The same where the sockets only tell that a peer has died.
static constexpr uint32_t kLooksPerPoll = 64;

// Steps of a thread that has slept between two looks at the sockets.
static constexpr int kStepsPerLook = 16;

// Passes for which a spinning thread keeps the lock before it looks whether others want it.
static constexpr uint32_t kPassesPerTurn = 256;

// How many times longer the grace of the background thread becomes.
static constexpr int64_t kMostGraces = 4;

// Steps that the control plane's word waits for, at most.
static constexpr int kStepsBeforeWord = 16;

Result<std::shared_ptr<Driver>> Driver::create(const DriverOptions& options) {
  auto poller = posix::Poller::create();
  if (!poller.ok()) return poller.status();
  auto alarm = posix::create_timer();
  if (!alarm.ok()) return alarm.status();
  std::shared_ptr<Driver> driver(
      new Driver(options, std::move(poller.value()), std::move(alarm.value())), [](Driver* each) {
        if (!each->is_of_parent()) delete each;
      });
  auto background = posix::start_thread([raw = driver.get()] { raw->run_background(); });
  if (!background.ok()) return background.status();
  driver->background_ = std::move(*background);
  return driver;
}

Driver::Driver(const DriverOptions& options, std::unique_ptr<posix::Poller> poller,
               posix::UniqueFd alarm)
    : options_(options),
      poller_(std::move(poller)),
      staging_(options.buffer_size),
      engine_(&staging_),
      alarm_(std::move(alarm)),
      grace_(options.grace_us * 1000) {}

Driver::~Driver() {
  {
    Lock lock(mutex_);
    closing_ = true;
    wake_watcher();
    set_alarm(now_ns());
  }
  if (background_.joinable()) background_.join();
}

// Makes a thread that spins give way.
Driver::Lock Driver::lock_engine() {
  Lock lock(mutex_, std::try_to_lock);
  if (lock.owns_lock()) [[likely]]
    return lock;
  contenders_.fetch_add(1, std::memory_order_relaxed);
  lock.lock();
  contenders_.fetch_sub(1, std::memory_order_relaxed);
  return lock;
}

Group* Driver::add_group(GroupConfig config, GroupHooks hooks) {
  Lock lock = lock_engine();
  Group* group = engine_.add_group(std::move(config));
  groups_.push_back({group, std::move(hooks)});
  // Who sleeps now did so before there was this group.
  if (armed_ && groups_.back().hooks.set_sleeping) groups_.back().hooks.set_sleeping(true);
  count_ranks();
  return group;
}

Status Driver::remove_group(Group* group) {
  Lock lock = lock_engine();
  std::erase_if(groups_, [group](const HookedGroup& held) { return held.group == group; });
  Status unheard = engine_.remove_group(group);
  staging_.trim();
  count_ranks();
  leave();
  return unheard;
}

void Driver::count_ranks() {
  oversubscribed_ = has_sockets_ = false;
  for (const HookedGroup& held : groups_) {
    oversubscribed_ |= held.hooks.local_ranks > held.hooks.local_cores;
    has_sockets_ |= held.hooks.has_sockets;
  }
}

void Driver::report(Group* group, const Cause& cause) {
  Lock lock = lock_engine();
  engine_.report(group, cause);
  hand_on_causes();
  leave();
}

void Driver::end_group(Group* group, const Status& status) {
  Lock lock = lock_engine();
  use_what_has_come();
  engine_.end_group(group, status);
  leave();
}

void Driver::mark_gone(Group* group, int peer, const Status& why) {
  Lock lock = lock_engine();
  engine_.mark_gone(group, peer, why);
  use_what_has_come();
  leave();
}

CallRecord Driver::call_record(const Group* group, uint32_t sequence) {
  Lock lock = lock_engine();
  return engine_.call_record(group, sequence);
}

GroupProgress Driver::progress(const Group* group) {
  Lock lock = lock_engine();
  return engine_.progress(group);
}

// What has come, and nobody has looked at, counts.
void Driver::use_what_has_come() {
  look();
  const TimeNs now = now_ns();
  for (int i = 0; i < kStepsBeforeWord && step(now); ++i) {
  }
  settle(now);
}

bool Driver::needs(const Group* group, uint32_t sequence, int peer) {
  Lock lock = lock_engine();
  use_what_has_come();
  const bool needed = engine_.needs(group, sequence, peer);
  leave();
  return needed;
}

void Driver::hand_on_causes() {
  if (!engine_.has_causes()) return;
  for (const HookedGroup& held : groups_) {
    Cause cause;
    if (engine_.take_cause(held.group, &cause)) held.hooks.on_cause(cause);
  }
}

Status Driver::group_status(const Group* group) {
  Lock lock = lock_engine();
  return engine_.group_status(group);
}

size_t Driver::link_bytes(const Group* group) {
  Lock lock = lock_engine();
  return engine_.link_bytes(group);
}

// Ends the watcher's sleep.
void Driver::wake_watcher() {
  woken_ = true;
  poller_->ring();
}

// To be called by who stepped while another thread sleeps in the poller: that one must hear of what
// can still be done, and of slots that are held. What was read off the bell or the sockets here
// does not wake it any more.
void Driver::settle(TimeNs now) {
  if (!watched_) return;
  engine_.before_sleep();
  set_armed(true);
  if (step(now)) wake_watcher();
}

// Collects what the sockets have to say, without sleeping. Where this takes a ring that was meant
// for the watcher, it rings again.
bool Driver::look() {
  const bool any = poller_->poll(0);
  if (woken_ && watched_) poller_->ring();
  return any;
}

// Wakes those whose turn it may be now: for callers whose work has ended, and the next watcher.
void Driver::leave() {
  if (watched_ && (callers_ > 0 || engine_.next_deadline() < watched_until_)) wake_watcher();
  if (callers_ > 0) {
    parked_.notify_all();
  } else if (spinners_ == 0 && !watched_ && engine_.active() > 0) {
    expect_callers(now_ns());
  }
}

void Driver::set_alarm(TimeNs at) {
  alarm_at_ = at;
  is_alarm_set_.store(true, std::memory_order_relaxed);
  posix::set_timer(alarm_.get(), at);
}

// Nobody watches what is under way, and a caller has just been here. An alarm that has not long to
// go is put off, unless nobody saw to an operation since it was set. Setting it may cost more than
// a call takes (in virtual machines some 10 us), so a loop of calls does it once in many.
void Driver::expect_callers(TimeNs now) {
  if (is_alarm_set_.load(std::memory_order_seq_cst)) {
    if (!is_attended_ || alarm_at_ - now > grace_) return;
    grace_ = std::min(2 * grace_, kMostGraces * options_.grace_us * 1000);
  }
  is_attended_ = false;
  set_alarm(now + 2 * grace_);
}

WorkState* Driver::submit(Group* group, std::span<Request> requests, TimeNs now,
                          bool wait_follows) {
  auto* work = new WorkState(shared_from_this(), static_cast<int>(requests.size()));
  Lock lock = lock_engine();
  const int before = engine_.active();
  is_attended_ |= before == 0;
  for (Request& request : requests) engine_.submit_part(group, std::move(request), now, work);
  hand_on_causes();
  if (engine_.active() < before) leave();  // it could not start: all have ended
  const bool moved = step(now);
  if (moved && (!wait_follows || work->done())) settle(now);
  if (wait_follows || work->done()) return work;
  if (watched_) {
    if (engine_.next_deadline() < watched_until_) wake_watcher();
  } else if (spinners_ == 0 && callers_ == 0) {
    expect_callers(now);
  }
  return work;
}

bool Driver::step(TimeNs now) {
  const int before = callers_ > 0 ? engine_.active() : 0;
  const bool moved = engine_.step(now);
  hand_on_causes();
  if (callers_ > 0 && engine_.active() < before) {
    parked_.notify_all();
    if (watched_) wake_watcher();
  }
  return moved;
}

void Driver::set_armed(bool armed) {
  if (armed == armed_) return;
  armed_ = armed;
  for (const HookedGroup& held : groups_) {
    if (held.hooks.set_sleeping) held.hooks.set_sleeping(armed);
  }
}

bool Driver::spin(Lock& lock, WorkState* work, TimeNs deadline) {
  ++spinners_;
  set_armed(false);  // it looks itself
  TimeNs now = 0;    // nothing is late before the first look at the clock
  const int64_t budget_us = options_.spin_us >= 0 ? options_.spin_us : kSpinUs;
  TimeNs idle_since = 0;  // 0: not known yet
  uint32_t yields = 0;
  uint32_t looks_without_poll = 0;
  for (uint32_t number = 1; !work->done() && now < deadline; ++number) {
    const bool looks = number % (oversubscribed_ ? kYieldsPerLook : kPassesPerLook) == 0;
    if (looks) {
      now = now_ns();
      if (idle_since == 0) idle_since = now;
      if (has_sockets_ || ++looks_without_poll % kLooksPerPoll == 0) look();
    }
    if (step(now)) {
      idle_since = now;
      yields = 0;
      continue;
    }
    if (oversubscribed_) {
      if (++yields > kYields) break;
      const TimeNs before = now_ns();
      lock.unlock();
      sched_yield();
      lock.lock();
      if (now_ns() - before > kYieldNs) break;
    } else if (looks && now - idle_since > budget_us * 1000) {
      break;
    }
    if (number % kPassesPerTurn == 0 && contenders_.load(std::memory_order_relaxed) > 0) {
      lock.unlock();
      sched_yield();
      lock.lock();
    }
  }
  --spinners_;
  settle(now);
  return work->done();
}

// Sleeps in the poller until something happens; then does what there is to do.
void Driver::watch(Lock& lock, const WorkState* work, TimeNs until) {
  watched_ = true;
  watched_until_ = std::min(until, engine_.next_deadline());
  engine_.before_sleep();
  set_armed(true);
  // What was written before the peers saw that they have to ring is found by looking once more.
  bool moved = poller_->poll(0);
  if (woken_.exchange(false) && callers_ > 0) parked_.notify_all();  // or one ended elsewhere
  moved |= step(now_ns());
  if (!moved && !woken_ && !closing_ && !(work != nullptr && work->done())) {
    const int64_t timeout_ms = watched_until_ == kNever ? -1 : left_ms(watched_until_, now_ns());
    lock.unlock();
    poller_->poll(timeout_ms);
    lock.lock();
  }
  watched_ = false;
  set_armed(false);
  if (woken_ && callers_ > 0) parked_.notify_all();  // their Work may have ended elsewhere
  for (int steps = 1; step(now_ns()); ++steps) {
    if (steps % kStepsPerLook == 0) look();  // what moves may hide what waits
  }
}

bool Driver::wait(WorkState* work, TimeNs deadline) {
  if (is_of_parent()) return false;
  Lock lock = lock_engine();
  waiting_.store(waiting_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  bool done = work->done() || spin(lock, work, deadline);
  if (!done) {
    ++callers_;
    while (!(done = work->done()) && now_ns() < deadline) {
      if (!watched_) {
        watch(lock, work, deadline);
        continue;
      }
      // The background thread is there, and makes room; or a caller, who does not know of an
      // earlier deadline.
      if (callers_ == 1 || engine_.next_deadline() < watched_until_) wake_watcher();
      if (deadline == kNever) {
        parked_.wait(lock);
      } else {
        parked_.wait_for(lock, std::chrono::milliseconds(left_ms(deadline, now_ns())));
      }
    }
    --callers_;
  }
  is_attended_ = true;
  waiting_.store(waiting_.load(std::memory_order_relaxed) - 1, std::memory_order_seq_cst);
  leave();
  return done;
}

void Driver::nudge() {
  if (is_of_parent()) return;
  Lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return;
  look();
  const TimeNs now = now_ns();
  step(now);
  settle(now);
}

// Somebody waits for the end of something, but not in wait().
void Driver::hurry() {
  if (is_of_parent()) return;
  Lock lock = lock_engine();
  if (!watched_ && callers_ == 0 && spinners_ == 0) set_alarm(now_ns());
}

void Driver::run_background() {
  Lock lock(mutex_);
  while (!closing_) {
    if (callers_ > 0 || spinners_ > 0 || engine_.active() == 0) {
      lock.unlock();
      do {
        posix::await_timer(alarm_.get());
        is_alarm_set_.store(false, std::memory_order_seq_cst);
      } while (waiting_.load(std::memory_order_seq_cst) > 0);
      lock.lock();
      continue;
    }
    grace_ = options_.grace_us * 1000;
    watch(lock, nullptr, kNever);
    if (callers_ > 0) parked_.notify_all();
  }
}

// Who spins looks anyway, and who sleeps does so in the poller while anything is under way; parked
// callers are woken by the one who then steps.
void Driver::wake() {
  woken_ = true;
  poller_->ring();
}

void Driver::complete(std::function<void()> fn) { completions_.call(std::move(fn)); }

}  // namespace ciuic::engine
