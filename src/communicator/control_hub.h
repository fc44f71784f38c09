// SPDX-License-Identifier: Apache-2.0
// control_hub.h: rank 0's office in a group's control plane: hears of every rank, and decides.
//
// The first cause that it hears of ends the group; it sends the same decision to all. Before it
// decides on calls that differ, or on an operation that is late, it asks the ranks what they have
// called: the error then names ranks and calls. A rank that is silent for too long is lost.
//
// No clock, no input or output: the same code runs in the simulator.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "communicator/control_messages.h"
#include "communicator/control_settings.h"

namespace ciuic::control {

class Hub {
 public:
  // `send` queues a message to a rank, rank 0 included, and never calls back.
  Hub(const Settings* settings, TimeNs now, std::function<void(int, const Message&)> send);

  void take(int rank, const Message& message, TimeNs now);
  void line_lost(int rank, TimeNs now);  // without a goodbye, unless kLeave came before
  void step(TimeNs now);

  // This process has not run for so long: what did not come meanwhile was not awaited.
  void shift(TimeNs by);

  TimeNs next_step() const;  // when step() has something to do at the latest
  bool is_over() const;      // all other ranks have left or are gone

 private:
  struct Member {
    TimeNs heard_at = 0;
    bool gone = false;  // or left
    bool in_good_order = false;
    TimeNs gone_at = 0;
  };

  // One question to all ranks that can answer.
  struct Inquiry {
    uint32_t sequence = 0;
    TimeNs until = 0;
    std::vector<std::optional<Message>> answers;  // by rank
    std::unique_ptr<Inquiry> first;  // some are behind, and were then asked what they wait for
  };

  bool is_silent(int rank, TimeNs now) const;
  void tell_all(const Message& message);
  void ask(uint32_t sequence, TimeNs now);
  bool is_answered(TimeNs now) const;
  bool asks_again(TimeNs now);
  void conclude(TimeNs now);
  void decide_late(TimeNs now, const std::string& missing);
  void decide(Status status, int lost = -1);
  std::string differing_calls() const;
  std::string missing_ranks(TimeNs now) const;
  int lost_rank(TimeNs now) const;
  void decide_message(const Message& cause, TimeNs now);
  Status about_silence(int rank, TimeNs now) const;
  std::string operation_text() const;

  const Settings& settings_;
  std::function<void(int, const Message&)> send_;
  std::vector<Member> members_;
  TimeNs beat_at_ = 0;
  std::optional<Inquiry> inquiry_;
  std::optional<uint32_t> asks_next_;  // the operation of the next one
  TimeNs asked_at_ = -1;               // last, and
  uint32_t asked_ = 0;                 // about this operation
  std::optional<Message> cause_;
  bool decided_ = false;
};

}  // namespace ciuic::control
