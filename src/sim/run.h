// SPDX-License-Identifier: Apache-2.0
// run.h: one run of a scenario: processes that step when their time comes, and what befalls them.
// Inner to simulation.h.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "sim/group_run.h"
#include "sim/judge.h"
#include "sim/simulation.h"
#include "sim/survivors.h"

namespace ciuic::sim {

class Run final : public Judge {
 public:
  explicit Run(const Scenario& scenario);
  ~Run() override;
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  Outcome run();

  void fail(const std::string& what) override;  // Judge

 private:
  enum class Stage : uint8_t {
    kCalling,    // until all calls on all live ranks have ended
    kSettling,   // what follows from them is told to all
    kMustering,  // survivors find each other,
    kSurviving,  // and call in a group of their own
    kClosing,    // all close
    kOver,
  };

  int script() const { return 2 * processes_count_; }
  void at(TimeNs when, std::function<void()> event) {
    events_.emplace(when, std::move(event));
    network_.wake(script(), when);
  }

  void set_up();
  void plan(size_t number);
  void happen(size_t number);
  void hit_connections(const Fault& fault);
  void plant_control(const Fault& fault);
  void kill(int number, bool loses);
  void set_counts(int number, bool counts);

  void loop();
  void on_script();
  void watch();
  void step(int number);
  void step_control(int number);
  void wait(int number, bool moved, TimeNs again);
  void ask_again(int number, TimeNs at);

  void settle();
  void muster();
  void come(int rank);
  void look_at_muster();
  void go_on(const std::vector<bool>& members);
  void close_all();

  void judge();
  void judge_process(int number);
  bool is_live(int number) const { return !processes_[number]->is_gone(network_.now()); }

  const Scenario& scenario_;
  const int processes_count_;
  SimNetwork network_;
  Outcome outcome_;
  std::deque<GroupRun> groups_;
  std::vector<std::unique_ptr<Process>> processes_;
  std::vector<FaultRecord> faults_;
  std::vector<Warning> warnings_;
  std::deque<Lie> lies_;
  std::multimap<TimeNs, std::function<void()>> events_;
  std::unique_ptr<Survivors> survivors_;
  std::vector<bool> there_;     // by rank of the first group: it musters, now or soon
  std::vector<bool> given_up_;  // some rank was told that it is lost
  Stage stage_ = Stage::kCalling;
  int unfinished_ = 0;  // processes
  Random random_{scenario_.seed + 2};
  std::byte* kept_ = nullptr;  // Bug::kStagingKept
};

}  // namespace ciuic::sim
