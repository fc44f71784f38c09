// SPDX-License-Identifier: Apache-2.0
// control_star.h: the lines of one group's simulated control plane: each rank's to rank 0.
//
// Lines are like TCP connections: messages stay in order and none is lost while both ends live. A
// line that was cut ends on both sides; one that was dropped says nothing more, and tells nobody.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "communicator/control_node.h"
#include "sim/channel.h"
#include "sim/random.h"

namespace ciuic::sim {

class ControlStar {
 public:
  // Sees, and may change, each message before it goes from one rank to another. False: it is lost.
  using Tamper = std::function<bool(int from, int to, control::Message* message)>;

  // `actors`: by rank, who is to be woken by World::wake().
  ControlStar(World* world, std::vector<int> actors, TimeNs latency_max, Random random);

  void set_tamper(Tamper tamper) { tamper_ = std::move(tamper); }
  void set_prints() { prints_ = true; }  // every message, to the standard output

  // To be taken once, and used only by that rank; lives as long as the star.
  control::Lines* lines(int rank) { return &ends_[rank]; }

  // The rank's lines end as of now, for its process is gone.
  void end_of(int rank, bool loses);

  // Between the rank and rank 0; of rank 0: all. `unseen`: but by rank 0 alone.
  void cut(int rank, bool loses, bool unseen = false);
  void drop(int rank);

  // The next message of the rank is followed by these bytes, which are no message, or a wrong one.
  void plant(int rank, std::string bytes);

  int size() const { return static_cast<int>(ends_.size()); }

 private:
  struct Flight {
    TimeNs at = 0;
    std::string bytes;
  };

  // One direction of a line.
  struct Direction {
    std::deque<Flight> flights;
    TimeNs latency = 0;  // at least
    TimeNs last_at = 0;
    TimeNs end_at = kNever;
    bool ended = false;
    bool dropped = false;
    bool garbled = false;  // its reader has met what is no message
    std::string planted;
  };

  class End final : public control::Lines {
   public:
    End(ControlStar* star, int rank) : star_(star), rank_(rank) {}
    void send(int rank, const control::Message& message) override;
    bool receive(int rank, control::Message* message) override;
    bool is_lost(int rank) override;

   private:
    ControlStar* star_;
    int rank_;
  };

  // One of the two is rank 0.
  Direction& direction(int from, int to) { return from == 0 ? down_[to] : up_[from]; }
  void print(int from, int to, const control::Message& message) const;
  void put(int to, Direction* direction, std::string bytes);
  void end(int to, Direction* direction, bool loses);

  World* world_;
  const std::vector<int> actors_;
  const TimeNs latency_max_;
  Random random_;
  Tamper tamper_;
  bool prints_ = false;
  std::vector<End> ends_;
  std::vector<Direction> up_;  // by rank, to rank 0
  std::vector<Direction> down_;
};

}  // namespace ciuic::sim
