// SPDX-License-Identifier: Apache-2.0
// member.h: one rank of one group: its side of the engine, and its node of the control plane.
//
// It stands for what a real process has around them (engine/driver.h,
// communicator/control_group.h): the engine's causes go to the node, which a thread of its own
// steps, and the node asks this.
#pragma once

#include <memory>
#include <optional>

#include "communicator/control_node.h"
#include "engine/data_path.h"
#include "engine/engine.h"
#include "sim/channel.h"
#include "sim/record.h"

namespace ciuic::sim {

// What a member tells of broken rules.
class Judge {
 public:
  virtual ~Judge() = default;
  virtual void fail(const std::string& what) = 0;
};

struct MemberOptions {
  World* world = nullptr;
  Judge* judge = nullptr;
  engine::Engine* engine = nullptr;
  engine::GroupConfig config;
  std::optional<control::Settings> settings;  // without: no control plane
  control::Lines* lines = nullptr;
  int process = 0;  // actors, to be woken
  int control = 0;
  RankRecord* record = nullptr;
  Bug bug = Bug::kNone;
  bool is_target = false;  // of the bug, where it is about one rank
};

class Member final : public engine::DataPath {
 public:
  explicit Member(MemberOptions options);

  // The process's own thread.
  engine::WorkState* submit(engine::Request request, TimeNs now);
  void abort(const std::string& reason);
  void close(TimeNs now);
  void hand_on_cause();  // after the engine has stepped
  void forsake();        // the run is over; what is under way ends

  // The control thread. Returns when it has something to do next.
  TimeNs step_control(TimeNs now);

  bool is_closed() const { return handle_ == nullptr; }
  bool is_over() const { return !node_ || node_->is_over(); }
  const Status& status() const { return engine_->group_status(handle_); }
  uint32_t next_sequence() const { return engine_->progress(handle_).next; }
  std::string call_text(uint32_t sequence) const {
    return engine_->call_record(handle_, sequence).text();
  }
  std::vector<bool> gone() const { return node_ ? node_->gone() : std::vector<bool>(); }

  // engine::DataPath, for the node.
  void end(const Status& status) override;
  void mark_gone(int rank, const Status& why) override;
  engine::CallRecord call_record(uint32_t sequence) override;
  engine::GroupProgress progress_of_group() override;
  bool needs(uint32_t sequence, int rank) override;

 private:
  void note_gone(TimeNs now);

  World* world_;
  Judge* judge_;
  engine::Engine* engine_;
  const int process_;
  const int control_;
  RankRecord* record_;
  const Bug bug_;
  const bool is_target_;
  engine::Group* handle_;
  std::optional<control::Node> node_;
  std::optional<engine::Cause> reported_;  // and not yet seen by the control thread
};

}  // namespace ciuic::sim
