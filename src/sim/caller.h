// SPDX-License-Identifier: Apache-2.0
// caller.h: one simulated rank of one group: calls the scenario's operations, checks their results
// and records how they end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collective/prepare.h"
#include "engine/work_state.h"
#include "sim/member.h"
#include "sim/record.h"
#include "sim/scenario.h"

namespace ciuic::sim {

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

struct CallerOptions {
  Judge* judge = nullptr;
  const Scenario* scenario = nullptr;
  const GroupScenario* group = nullptr;
  int number = 0;  // of the group
  int rank = 0;
  Member* member = nullptr;
  RankRecord* record = nullptr;
  bool is_target = false;  // of the scenario's bug, where it is about one rank
};

class Caller {
 public:
  explicit Caller(CallerOptions options);
  ~Caller();
  Caller(const Caller&) = delete;
  Caller& operator=(const Caller&) = delete;

  // Looks at what has ended, then calls what is due. `again` is when it wants to be asked again.
  void act(TimeNs now, TimeNs* again);

  // It makes another call than the others as the number `call`, and where that is the next one's,
  // this one's as the next.
  void call_otherwise(size_t call, Call other, bool swaps);

  // It makes its calls from `call` on only at `until`; kNever: not at all.
  void hold(size_t call, TimeNs until);

  bool is_finished() const {
    return pending_.empty() && (next_call_ >= last_call() || member_->is_closed());
  }
  bool has_error() const { return has_error_; }
  TimeNs earliest_deadline() const;  // of what is under way
  void close(TimeNs now) { member_->close(now); }
  Member* member() { return member_; }

  // Nobody has written to the outputs of operations after they had ended.
  void check_untouched() const;

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
    std::byte* input_at = nullptr;  // both are within one of them, or null
    std::byte* output_at = nullptr;
    size_t output_bytes = 0;
    std::vector<std::byte> input_copy;   // what must still be there, save where the output lies
    std::vector<std::byte> output_copy;  // what must still be between its blocks; else empty
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

  const std::vector<Call>& calls() const { return group_->calls; }
  const Call& call_of(size_t number) const;
  bool is_lie(size_t number) const;
  size_t last_call() const { return held_until_ == kNever ? held_from_ : calls().size(); }
  std::shared_ptr<const plan::Plan> plan_for(const Call& call);
  engine::Request request_for(const Call& call, Pending* pending);
  engine::Request chosen_request_for(const Call& call, Pending* pending);
  void submit(TimeNs now);
  enum class Side : uint8_t { kInput, kOutput };
  plan::Shape shape_of(const Call& call) const;
  plan::Elements block_of(const Call& call, int rank, Side side, int block) const;
  std::vector<int64_t> counts_of(const Call& call, Side side) const;
  int64_t elements_of(const Call& call, Side side) const;
  void set_up(const Call& call, Pending* pending);
  void look_at_ends(TimeNs now);
  void judge_end(TimeNs now, Pending* pending);
  void keep(Pending* pending);
  bool has_written_input(const Pending& pending) const;
  bool has_written_between(const Pending& pending) const;
  std::string check_result(const Pending& pending) const;
  std::string check_blocks(const Pending& pending) const;
  std::string check_random_plan(const Pending& pending) const;
  void check_untouched(const Ended& ended) const;
  void fail(size_t call, const std::string& what) const;
  Status planted(const Status& status) const;

  Judge* judge_;
  const Scenario* scenario_;
  const GroupScenario* group_;
  const int number_;
  const int rank_;
  const Pace pace_;
  const bool is_target_;
  Random random_;
  Member* member_;
  RankRecord* record_;
  size_t next_call_ = 0;
  TimeNs next_call_at_ = 0;
  size_t held_from_ = SIZE_MAX;
  TimeNs held_until_ = 0;
  size_t lie_at_ = SIZE_MAX;
  bool lie_swaps_ = false;
  Call lie_;
  std::vector<Planned> plans_;
  collective::Chooser chooser_;
  std::deque<Pending> pending_;
  std::deque<Ended> ended_ago_;
  std::vector<size_t> staging_;  // that each call may need
  bool has_error_ = false;
  int ok_ = 0;
  int ended_ = 0;
};

}  // namespace ciuic::sim
