// SPDX-License-Identifier: Apache-2.0
// caller.h: one simulated rank of one group: calls the scenario's operations and checks their ends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "collective/operations.h"
#include "engine/engine.h"
#include "engine/work_state.h"
#include "sim/scenario.h"

namespace ciuic::sim {

// When a group first ended on any rank, in an error or not: errors elsewhere may follow from it.
struct GroupEnd {
  TimeNs first_end_at = kNever;
  std::set<std::string> errors;  // that some rank has ended with
};

// What a caller reports to.
class Judge {
 public:
  virtual ~Judge() = default;
  virtual void fail(const std::string& what) = 0;
  virtual TimeNs loss_at() const = 0;  // from when connections may be lost; kNever
};

// Memory of one operand, with room on both sides that nobody may write to.
class GuardedBuffer {
 public:
  GuardedBuffer() = default;
  GuardedBuffer(size_t bytes, uint64_t seed);

  std::byte* data() { return bytes_.data() + begin_; }
  const std::byte* data() const { return bytes_.data() + begin_; }
  size_t size() const { return size_; }
  bool is_intact() const;  // around the operand

 private:
  std::vector<std::byte> bytes_;
  size_t begin_ = 0;
  size_t size_ = 0;
};

class Caller {
 public:
  Caller(Judge* judge, const Scenario* scenario, int group, int rank, engine::Engine* engine,
         engine::Group* handle, GroupEnd* end);
  ~Caller();
  Caller(const Caller&) = delete;
  Caller& operator=(const Caller&) = delete;

  // Looks at what has ended, then calls what is due. `again` is when it wants to be asked again.
  void act(TimeNs now, TimeNs* again);

  bool is_finished() const { return next_call_ == calls().size() && pending_.empty(); }
  bool is_closed() const { return handle_ == nullptr; }
  void close(TimeNs now);

  // Nobody has written to the outputs of operations after they had ended.
  void check_untouched() const;

  // Of a call's output, for comparison between ranks; 0 where there is none.
  uint64_t result_hash(size_t call) const { return hashes_[call]; }

  size_t staging_bound() const;      // bytes, over the calls made so far
  std::string pending_text() const;  // empty once finished
  int ok() const { return ok_; }
  int ended() const { return ended_; }

 private:
  struct Pending {
    size_t call = 0;
    engine::WorkState* work = nullptr;
    GuardedBuffer input;
    GuardedBuffer output;
    std::byte* input_at = nullptr;      // within one of them
    std::vector<std::byte> input_copy;  // empty where it is in place
    TimeNs deadline = kNever;
  };
  struct Ended {
    size_t call = 0;
    GuardedBuffer input;
    GuardedBuffer output;
    uint64_t hash = 0;
  };
  struct Planned {
    plan::Operation operation{};
    plan::Algorithm algorithm{};
    int root = 0;
    std::shared_ptr<const plan::Plan> plan;
  };

  const std::vector<Call>& calls() const { return scenario_->groups[group_].calls; }
  std::shared_ptr<const plan::Plan> plan_for(const Call& call);
  engine::Request request_for(const Call& call, Pending* pending);
  engine::Request chosen_request_for(const Call& call, Pending* pending);
  void submit(TimeNs now);
  void set_up(const Call& call, size_t input_bytes, size_t output_bytes, int input_block,
              Pending* pending);
  void judge_end(TimeNs now, Pending* pending);
  void judge_error(TimeNs now, const Pending& pending);
  std::string check_result(const Pending& pending) const;
  std::string check_random_plan(const Pending& pending) const;
  void check_untouched(const Ended& ended) const;
  void fail(size_t call, const std::string& what) const;

  Judge* judge_;
  const Scenario* scenario_;
  const int group_;
  const int rank_;
  const Pace pace_;
  Random random_;
  engine::Engine* engine_;
  engine::Group* handle_;
  GroupEnd* end_;
  size_t next_call_ = 0;
  TimeNs next_call_at_ = 0;
  std::vector<Planned> plans_;
  collective::Chooser chooser_;
  std::deque<Pending> pending_;
  std::deque<Ended> ended_ago_;
  std::vector<uint64_t> hashes_;
  std::vector<size_t> staging_;  // that each call may need
  Status error_;                 // the group's
  TimeNs error_at_ = kNever;
  int ok_ = 0;
  int ended_ = 0;
};

}  // namespace ciuic::sim
