// SPDX-License-Identifier: Apache-2.0
// muster.cc: who leads, who has come, who is gone.

#include "communicator/muster.h"

#include <fmt/format.h>

#include <algorithm>

namespace ciuic::control {

Muster::Muster(Doors* doors, int rank, std::vector<bool> gone, TimeNs now, TimeNs deadline)
    : doors_(doors),
      rank_(rank),
      gone_(std::move(gone)),
      called_(gone_.size(), false),
      probe_at_(std::min(deadline, now + kProbeAfter)),
      deadline_(deadline),
      lead_deadline_(deadline - std::min<TimeNs>((deadline - now) / 4, kFollowersWait)),
      next_(probe_at_) {
  gone_[static_cast<size_t>(rank)] = false;
}

bool Muster::finish(Status status) {
  status_ = std::move(status);
  return ended_ = true;
}

bool Muster::step(TimeNs now) {
  if (ended_) return true;
  bool leads = true;
  for (int rank = 0; rank < rank_; ++rank) {
    if (gone_[rank]) continue;
    if (!called_[rank]) doors_->call(rank, gone_);
    called_[rank] = true;
    gone_[rank] = doors_->answer(rank) == Doors::Answer::kGone;
    leads = leads && gone_[rank];
  }
  if (leads ? lead(now) : follow()) return true;
  const TimeNs deadline = leads ? lead_deadline_ : deadline_;
  next_ = now < probe_at_ ? probe_at_ : deadline;
  if (now < deadline) return false;
  std::string missing;
  for (size_t rank = 0; rank < gone_.size(); ++rank) {
    const int number = static_cast<int>(rank);
    if (gone_[rank] || number == rank_) continue;
    const bool is_there = number < rank_ ? doors_->answer(number) == Doors::Answer::kThere
                                         : !leads || doors_->has_come(number);
    if (!is_there) missing += (missing.empty() ? "" : ", ") + std::to_string(rank);
  }
  return finish({StatusCode::kTimeout,
                 missing.empty()
                     ? "the survivors did not all come together in time: a lower rank still waits "
                       "for others"
                     : fmt::format("rank {} did not come to shrink() in time, and is not known to "
                                   "be gone; every survivor has to call it",
                                   missing)});
}

bool Muster::lead(TimeNs now) {
  bool all = true;
  for (size_t place = static_cast<size_t>(rank_) + 1; place < gone_.size(); ++place) {
    const int rank = static_cast<int>(place);
    // What others know of the dead, the leader may not.
    const std::vector<bool> told = doors_->gone_by(rank);
    for (size_t other = 0; other < told.size() && other < gone_.size(); ++other) {
      if (told[other] && static_cast<int>(other) != rank_ &&
          !doors_->has_come(static_cast<int>(other))) {
        gone_[other] = true;
      }
    }
  }
  for (size_t place = static_cast<size_t>(rank_) + 1; place < gone_.size(); ++place) {
    const int rank = static_cast<int>(place);
    if (gone_[place] || doors_->has_come(rank)) continue;
    if (now >= probe_at_) {
      if (!called_[place]) doors_->call(rank, gone_);
      called_[place] = true;
      gone_[place] = doors_->answer(rank) == Doors::Answer::kGone;
    }
    all = all && gone_[place];
  }
  if (!all) return false;
  members_.assign(gone_.size(), false);
  for (size_t rank = 0; rank < gone_.size(); ++rank) members_[rank] = !gone_[rank];
  for (size_t place = static_cast<size_t>(rank_) + 1; place < gone_.size(); ++place) {
    if (members_[place]) doors_->announce(static_cast<int>(place), members_);
  }
  return finish(Status());
}

bool Muster::follow() {
  for (int rank = 0; rank < rank_; ++rank) {
    if (gone_[rank] || !doors_->announced(rank, &members_)) continue;
    if (members_.size() == gone_.size() && members_[rank_] && members_[rank]) {
      return finish(Status());
    }
    return finish({StatusCode::kPeerLost,
                   fmt::format("the other survivors were told that rank {} is lost, and go on "
                               "without it",
                               rank_)});
  }
  return false;
}

}  // namespace ciuic::control
