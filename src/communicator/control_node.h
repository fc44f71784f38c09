// SPDX-License-Identifier: Apache-2.0
// control_node.h: one rank's part in the control plane of its group. Start here.
//
// The connections of the join live on: each rank has a line to rank 0, where the hub is. They carry
// what must arrive while the data path stands still: that a rank has a cause to end the group, that
// it is gone, late or silent, and what it has called (control_messages.h). A rank that has a cause
// halts its data path and waits for the hub's decision, so that every rank ends with the same
// error.
//
//   the hub's process dies   all see it at once; operations get a moment to finish, then end
//   the hub is silent        a rank waits for its decision for a while, then goes by its own cause
//   rank 0 closes            its hub goes on as long as its process does; after that, each rank
//   goes
//                            by its own causes, which the links carry on
//
// No clock, no threads, no input or output of its own: control_thread.h has them, the simulator its
// own. One thread at a time.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "communicator/control_hub.h"
#include "communicator/control_messages.h"
#include "communicator/control_settings.h"
#include "engine/data_path.h"

namespace ciuic::control {

// A rank's connections to the others: rank 0 has one to each, the others one, to rank 0.
class Lines {
 public:
  virtual ~Lines() = default;

  virtual void send(int rank, const Message& message) = 0;  // queues; nothing where it is lost
  virtual bool receive(int rank, Message* message) = 0;     // false: nothing is there

  // Whether the other end is gone; what it had sent has then been received.
  virtual bool is_lost(int rank) = 0;
};

class Node {
 public:
  // `lines` and `data_path` outlive it; `data_path` only until leave().
  Node(Settings settings, Lines* lines, engine::DataPath* data_path, TimeNs now);

  // The data path has halted.
  void report(const engine::Cause& cause, TimeNs now);

  // Closes in good order. The data path is not touched any more.
  void leave(TimeNs now);

  void step(TimeNs now);
  TimeNs next_step() const;  // when step() has something to do at the latest
  bool is_over() const;      // it has left, and no other rank needs the hub that it may have

  // By rank: who is known to be gone, has left or was given up; maybe this rank itself.
  const std::vector<bool>& gone() const { return gone_; }

 private:
  void take_all(TimeNs now);
  void take(const Message& message, TimeNs now);
  void answer(uint32_t sequence);
  void say(const Message& message);
  void end(const Status& status);
  void on_hub_lost(TimeNs now);
  void forgive(TimeNs now);
  void give_up_hub(const Status& status);
  void look_at_cause(TimeNs now);
  void look_at_hub(TimeNs now);
  void look_at_progress(TimeNs now);
  Status of_silent_hub(TimeNs limit) const;

  Settings settings_;
  Lines* lines_;
  engine::DataPath* data_path_;  // null once left
  std::unique_ptr<Hub> hub_;     // on rank 0
  std::deque<Message> to_self_;  // from the hub, where it is here
  std::deque<Message> to_hub_;   // to it
  std::vector<bool> gone_;
  std::vector<bool> lines_lost_;

  TimeNs stepped_at_ = 0;
  TimeNs beat_at_ = 0;
  TimeNs hub_heard_at_ = 0;
  bool hub_left_ = false;
  bool hub_lost_ = false;
  TimeNs hub_lost_at_ = kNever;
  Status hub_status_;           // once lost without a goodbye
  TimeNs orphans_at_ = kNever;  // when what still runs without the hub ends, or is looked at

  std::optional<engine::Cause> cause_;
  TimeNs cause_at_ = 0;
  bool ended_ = false;

  uint32_t waits_for_ = 0;   // the operation, and
  TimeNs asks_at_ = kNever;  // when the hub is asked about it next
  TimeNs asks_after_ = 0;
};

}  // namespace ciuic::control
