// SPDX-License-Identifier: Apache-2.0
// judge.h: what must hold for the ends of a group's operations, given the faults of the run.
//
// With a control plane, and one fault, all live ranks on which an operation has not completed end
// with the same status, of the fault's code, that names its rank; later calls and the close say the
// same. With two faults either of them may be the cause. What is left open, and nothing else:
//
//   - Where the hub, rank 0, or a rank's line to it is the victim (gone, silent, cut off), ranks
//   may
//     have to go by what each of them sees: then each status names the victim or the hub, and those
//     that the hub still reaches have the same one.
//   - A rank that goes without a close after its part is no error, unless it takes what it had sent
//     along, or is the hub and others are still at work a second later.
//   - What a rank says that sends nonsense over the control plane is believed if it can be read;
//   the
//     error is then the same on all, but of any kind.
//   - Where messages on data links vanish while the control plane is whole, the ranks time out;
//     nobody can tell whose link it was.
//   - Where time is short (Scenario::is_patient is not set), a time-out may come before any fault
//   is
//     known. It is never early.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "communicator/control_settings.h"
#include "sim/record.h"

namespace ciuic::sim {

// Whether a message names the rank, alone ("rank 3") or in a list ("ranks 1, 3").
bool names_rank(const std::string& message, int rank);

// From a group's time-out, or from a rank's end, until all who can hear of it have ended.
TimeNs spread_bound(const Scenario& scenario);

// From an operation's deadline until it has ended, whatever the faults are.
TimeNs longest_bound(const Scenario& scenario);

control::Settings settings_for(const Scenario& scenario);

class GroupJudge {
 public:
  using Fail = std::function<void(const std::string&)>;

  GroupJudge(const Scenario* scenario, const std::vector<FaultRecord>* faults,
             const std::vector<Warning>* warnings, const GroupRecord* group, Fail fail);

  void judge();

  // What the group has ended with, each text once.
  std::vector<std::string> errors() const;

 private:
  struct Error {
    int rank = 0;
    TimeNs at = 0;
    Status status;
    bool by_close = false;  // told by the close, long after
  };

  int rank_of(int process) const;
  bool touches(const Fault& fault) const;
  bool is_live(int rank) const;
  bool is_held(int rank, size_t call) const;
  bool closes_early(int rank) const;
  bool is_cut_off(int rank) const;  // from the hub, which lives
  bool hub_is_victim() const;
  TimeNs resumed_at(int rank) const;
  TimeNs bound() const;

  void collect();
  void judge_results();
  void judge_calls(int rank);
  void judge_rank(int rank);
  void judge_errors();
  void judge_sameness();
  void judge_knowledge(const FaultRecord& record);
  void judge_cut(const FaultRecord& record);
  void judge_reports(int rank);
  void judge_abort(const FaultRecord& record);
  void judge_warnings() const;
  void judge_loose();
  std::string wrong_with(const Error& error) const;
  std::string wrong_with_time_out(const Error& error) const;
  bool follows_from_another(const Error& error) const;
  bool explains(const FaultRecord& record, const Error& error) const;
  bool explains_mismatch(const Fault& fault, int victim, const Error& error) const;
  bool explains_lateness(const FaultRecord& record, int victim, const Error& error) const;

  const Scenario& scenario_;
  const std::vector<Warning>& warnings_;
  const GroupRecord& group_;
  Fail fail_;
  const control::Settings settings_;
  std::vector<FaultRecord> faults_;  // that happened, and concern this group
  std::vector<Error> errors_;        // on live ranks, in order of time
};

}  // namespace ciuic::sim
