// SPDX-License-Identifier: Apache-2.0
// survivors.h: the ranks of a group that has ended in an error find each other, as shrink() lets
// them: each has a Muster, over doors that are messages under way.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "communicator/muster.h"
#include "sim/channel.h"
#include "sim/random.h"

namespace ciuic::sim {

class Survivors {
 public:
  // `actors`: by rank, who is to be woken.
  Survivors(World* world, std::vector<int> actors, TimeNs latency_max, Random random);
  ~Survivors();

  // The rank comes to it, and knows these to be gone.
  void begin(int rank, std::vector<bool> gone, TimeNs deadline);

  // Nobody listens there any more; it may have come before.
  void die(int rank);

  void step(int rank);
  TimeNs next_step(int rank) const;

  bool has_begun(int rank) const { return musters_[rank] != nullptr; }
  bool has_ended(int rank) const { return ended_[rank]; }
  bool is_dead(int rank) const { return dead_[rank]; }
  const control::Muster& muster(int rank) const { return *musters_[rank]; }
  int size() const { return static_cast<int>(musters_.size()); }

  // Planted: one of the members that the rank is told of is another one.
  void set_target(int rank) { target_ = rank; }

  // What is wrong with how it has ended; empty: nothing. `there`: by rank, who has come, or would
  // have at the next look; `given_up`: whom some rank had been told to be lost.
  std::string wrong(const std::vector<bool>& there, const std::vector<bool>& given_up) const;

  std::string text() const;  // who has agreed on whom

  // By old rank; empty: they have not agreed.
  std::vector<bool> members() const;

 private:
  class SimDoors;
  struct Letter {
    TimeNs at = kNever;  // of its arrival
    std::vector<bool> ranks;
  };
  using Way = std::pair<int, int>;  // from, to

  TimeNs arrival() { return world_->now() + random_.between(1, latency_max_); }
  Letter& write(std::map<Way, Letter>* letters, int from, int to, const std::vector<bool>& ranks);

  World* world_;
  const std::vector<int> actors_;
  const TimeNs latency_max_;
  Random random_;
  std::vector<std::unique_ptr<SimDoors>> doors_;
  std::vector<std::unique_ptr<control::Muster>> musters_;
  std::vector<bool> ended_;
  std::vector<bool> dead_;
  std::map<Way, Letter> calls_;
  std::map<Way, Letter> announcements_;
  int target_ = -1;
};

}  // namespace ciuic::sim
