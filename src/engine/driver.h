// SPDX-License-Identifier: Apache-2.0
// driver.h: who steps the engine, and when threads sleep.
//
// Callers drive: a thread in wait() steps the engine itself, for all groups. It spins for a bounded
// time (with more ranks than cores not at all: it yields a few times), then sleeps in the poller,
// from where a peer's write to a shared segment rings it, or a socket wakes it. One thread at a
// time is there, the watcher; other waiting threads are parked until their work has ended or the
// watch is free. The background thread watches only while operations are under way and no caller
// has been there for a moment; it never spins. Whoever starts an operation mostly waits for it
// soon, so it is told of the first one, and then looks by itself until nothing is under way any
// more. Functions given to Work::on_done() run on threads for completions.
//
// Any thread may call. Lives as long as a communicator or a Work refers to it. In a forked child it
// has no threads, and shares its links with the parent: there it does nothing, and is not
// destroyed.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "base/fork.h"
#include "drivers/posix/poller.h"
#include "drivers/posix/unique_fd.h"
#include "engine/completions.h"
#include "engine/engine.h"
#include "engine/work_state.h"
#include "memory/staging_pool.h"

namespace ciuic::engine {

struct DriverOptions {
  size_t buffer_size = size_t{1} << 26;
  int64_t spin_us = -1;  // -1: 200; none where ranks outnumber cores

  // For so long the background thread leaves to the callers what is under way, and for twice that
  // at most: a caller that waits soon need then not share its core with it. Four times as long
  // while callers do wait for all that they start.
  int64_t grace_us = 100;
};

// What the driver needs of a group beside its links.
struct GroupHooks {
  std::function<void(bool)> set_sleeping;  // tells peers to ring; may be empty
  bool has_sockets = false;                // data of its links comes over sockets
  int local_ranks = 1;                     // of the group, on this host
  int local_cores = 1;                     // that these ranks may use, together

  // Hears of a cause for which the group was halted (GroupConfig::is_arbitrated). Called with the
  // driver's lock held: it hands it on, and calls nothing here.
  std::function<void(const Cause&)> on_cause = {};
};

class Driver final : public WorkDriver, public std::enable_shared_from_this<Driver> {
 public:
  static Result<std::shared_ptr<Driver>> create(const DriverOptions& options);
  ~Driver() override;

  posix::Poller* poller() { return poller_.get(); }

  Group* add_group(GroupConfig config, GroupHooks hooks);
  Status remove_group(Group* group);
  void report(Group* group, const Cause& cause);
  void end_group(Group* group, const Status& status);
  void mark_gone(Group* group, int peer, const Status& why);
  Status group_status(const Group* group);
  CallRecord call_record(const Group* group, uint32_t sequence);
  GroupProgress progress(const Group* group);
  bool needs(const Group* group, uint32_t sequence, int peer);

  // `wait_follows`: the caller is about to wait, so that nobody else need be woken.
  // Several requests are parts of one Work.
  WorkState* submit(Group* group, std::span<Request> requests, TimeNs now, bool wait_follows);

  bool wait(WorkState* work, TimeNs deadline) override;
  void nudge() override;
  void complete(std::function<void()> fn) override;
  void wake() override;
  void hurry() override;
  bool is_of_parent() const override { return made_in_ != fork_generation(); }

  size_t staging_bytes() const { return staging_.held(); }
  size_t link_bytes(const Group* group);

 private:
  Driver(const DriverOptions& options, std::unique_ptr<posix::Poller> poller,
         posix::UniqueFd alarm);

  using Lock = std::unique_lock<std::mutex>;

  struct HookedGroup {
    Group* group = nullptr;
    GroupHooks hooks;
  };

  Lock lock_engine();
  bool step(TimeNs now);
  void hand_on_causes();
  void count_ranks();
  bool spin(Lock& lock, WorkState* work, TimeNs deadline);
  void watch(Lock& lock, const WorkState* work, TimeNs until);
  void set_armed(bool armed);
  void wake_watcher();
  void use_what_has_come();
  void settle(TimeNs now);
  bool look();
  void leave();
  void set_alarm(TimeNs at);
  void expect_callers(TimeNs now);
  void run_background();

  const uint32_t made_in_ = fork_generation();
  DriverOptions options_;
  std::unique_ptr<posix::Poller> poller_;
  memory::StagingPool staging_;

  std::mutex mutex_;  // guards the engine, and all that follows but the atomics
  Engine engine_;
  std::vector<HookedGroup> groups_;
  std::condition_variable parked_;
  std::atomic<int> contenders_{0};  // threads that want the mutex from one that spins
  int spinners_ = 0;
  int callers_ = 0;  // in wait(), no longer spinning
  bool watched_ = false;
  std::atomic<bool> woken_{false};  // the watcher shall leave its sleep
  bool armed_ = false;
  TimeNs watched_until_ = kNever;
  bool oversubscribed_ = false;  // more ranks than cores
  bool has_sockets_ = false;     // data comes over sockets, too
  bool closing_ = false;

  // The background thread sleeps at the alarm, a timer, and sleeps on where it then sees a caller
  // in wait(), who sets the alarm anew when leaving: so it never asks for a lock that a caller has.
  posix::UniqueFd alarm_;
  std::atomic<bool> is_alarm_set_{false};  // and has not rung
  std::atomic<int> waiting_{0};            // callers in wait()
  TimeNs alarm_at_ = 0;
  TimeNs grace_;
  bool is_attended_ = true;  // callers have seen to all that is under way since it was set
  std::thread background_;

  Completions completions_;
};

}  // namespace ciuic::engine
