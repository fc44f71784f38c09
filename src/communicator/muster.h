// SPDX-License-Identifier: Apache-2.0
// muster.h: after an error, the survivors of a group find each other and agree who they are.
//
// All survivors muster. The lowest of them leads: it waits until every rank that is not known to be
// gone has come to it, and tells them who is in. A rank calls at all lower ranks that it does not
// know to be gone; one at which nobody listens any more is gone, since ranks keep listening from
// the join on. Nobody is left out for being late: a rank that neither comes nor is gone ends the
// muster with kTimeout on all. So two groups of survivors cannot come about, unless the network
// between them is cut and each has been told that the others are lost.
//
// No clock, no input or output: shrink.cc has them, the simulator its own. One thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "ciuic/status.h"

namespace ciuic::control {

// How ranks reach each other while they muster.
class Doors {
 public:
  enum class Answer : uint8_t {
    kNone,   // nothing yet: it may not muster yet, or the network is slow
    kThere,  // it musters
    kGone,   // nobody listens there
  };

  virtual ~Doors() = default;
  virtual void call(int rank,
                    const std::vector<bool>& gone) = 0;  // again and again until it answers
  virtual Answer answer(int rank) = 0;                   // to call()
  virtual bool has_come(int rank) = 0;                   // it has called here, and is there
  virtual std::vector<bool> gone_by(
      int rank) = 0;  // whom it knew to be gone; empty: it has not come
  virtual void announce(int rank, const std::vector<bool>& members) = 0;  // to one that has come
  virtual bool announced(int rank, std::vector<bool>* members) = 0;       // by one that was called
};

class Muster {
 public:
  // `gone`: by rank, as far as this one knows.
  Muster(Doors* doors, int rank, std::vector<bool> gone, TimeNs now, TimeNs deadline);

  // Whether it has ended, well or not.
  bool step(TimeNs now);
  TimeNs next_step() const { return next_; }

  // Where it has. kTimeout: names the ranks that did not come. kPeerLost: the others have agreed
  // without this rank, since they were told that it is lost.
  const Status& status() const { return status_; }
  const std::vector<bool>& members() const { return members_; }  // by old rank

 private:
  static constexpr TimeNs kProbeAfter = 200'000'000;
  static constexpr TimeNs kFollowersWait = 500'000'000;

  bool lead(TimeNs now);
  bool follow();
  bool finish(Status status);

  Doors* doors_;
  int rank_;
  std::vector<bool> gone_;
  std::vector<bool> called_;
  TimeNs probe_at_;
  TimeNs deadline_;
  TimeNs lead_deadline_;  // a little before: those who follow are still there to be seen
  TimeNs next_;
  bool ended_ = false;
  Status status_;
  std::vector<bool> members_;
};

}  // namespace ciuic::control
