// SPDX-License-Identifier: Apache-2.0
// survivors.cc: letters between the doors, and what must hold once all musters have ended.

#include "sim/survivors.h"

#include <fmt/format.h>

#include "sim/judge.h"

namespace ciuic::sim {

class Survivors::SimDoors final : public control::Doors {
 public:
  SimDoors(Survivors* all, int rank) : all_(all), rank_(rank) {}

  void call(int rank, const std::vector<bool>& gone) override {
    const TimeNs at = all_->write(&all_->calls_, rank_, rank, gone).at;
    all_->world_->wake(all_->actors_[rank_], at + all_->latency_max_);  // with the answer
  }
  Answer answer(int rank) override {
    const auto call = all_->calls_.find({rank_, rank});
    if (call == all_->calls_.end()) return Answer::kNone;
    if (all_->world_->now() < call->second.at + all_->latency_max_) return Answer::kNone;
    if (all_->dead_[rank]) return Answer::kGone;
    return all_->has_begun(rank) ? Answer::kThere : Answer::kNone;
  }
  bool has_come(int rank) override { return arrived(all_->calls_, rank) && !all_->dead_[rank]; }
  std::vector<bool> gone_by(int rank) override {
    return has_come(rank) ? all_->calls_[{rank, rank_}].ranks : std::vector<bool>();
  }
  void announce(int rank, const std::vector<bool>& members) override {
    std::vector<bool> told = members;
    if (rank == all_->target_) told[0] = !told[0];
    all_->write(&all_->announcements_, rank_, rank, told);
  }
  bool announced(int rank, std::vector<bool>* members) override {
    if (!arrived(all_->announcements_, rank)) return false;
    *members = all_->announcements_[{rank, rank_}].ranks;
    return true;
  }

 private:
  bool arrived(const std::map<Way, Letter>& letters, int from) const {
    const auto letter = letters.find({from, rank_});
    return letter != letters.end() && letter->second.at <= all_->world_->now();
  }

  Survivors* all_;
  int rank_;
};

Survivors::Survivors(World* world, std::vector<int> actors, TimeNs latency_max, Random random)
    : world_(world),
      actors_(std::move(actors)),
      latency_max_(latency_max),
      random_(random),
      doors_(actors_.size()),
      musters_(actors_.size()),
      ended_(actors_.size(), false),
      dead_(actors_.size(), false) {}

Survivors::~Survivors() = default;

Survivors::Letter& Survivors::write(std::map<Way, Letter>* letters, int from, int to,
                                    const std::vector<bool>& ranks) {
  Letter& letter = (*letters)[{from, to}];
  letter = {arrival(), ranks};
  world_->wake(actors_[to], letter.at);
  return letter;
}

void Survivors::begin(int rank, std::vector<bool> gone, TimeNs deadline) {
  doors_[rank] = std::make_unique<SimDoors>(this, rank);
  musters_[rank] = std::make_unique<control::Muster>(doors_[rank].get(), rank, std::move(gone),
                                                     world_->now(), deadline);
  // Who has called it gets its answer now.
  for (const int actor : actors_) world_->wake(actor, world_->now() + latency_max_);
}

void Survivors::die(int rank) {
  dead_[rank] = true;
  for (const int actor : actors_) world_->wake(actor, world_->now() + latency_max_);
}

void Survivors::step(int rank) {
  if (musters_[rank] == nullptr || ended_[rank] || dead_[rank]) return;
  ended_[rank] = musters_[rank]->step(world_->now());
}

TimeNs Survivors::next_step(int rank) const {
  const bool runs = musters_[rank] != nullptr && !ended_[rank] && !dead_[rank];
  return runs ? musters_[rank]->next_step() : kNever;
}

std::string Survivors::text() const {
  std::string text;
  for (int rank = 0; rank < size(); ++rank) {
    if (!has_begun(rank)) continue;
    text += fmt::format("; rank {}: ", rank);
    if (!ended_[rank]) continue;
    const control::Muster& of_rank = muster(rank);
    if (!of_rank.status().ok()) text += of_rank.status().message();
    for (size_t other = 0; other < of_rank.members().size(); ++other) {
      if (of_rank.members()[other]) text += fmt::format("{} ", other);
    }
  }
  return text;
}

std::vector<bool> Survivors::members() const {
  for (int rank = 0; rank < size(); ++rank) {
    const bool agrees =
        has_begun(rank) && ended_[rank] && !dead_[rank] && muster(rank).status().ok();
    if (agrees) return muster(rank).members();
  }
  return {};
}

std::string Survivors::wrong(const std::vector<bool>& there,
                             const std::vector<bool>& given_up) const {
  const std::vector<bool> agreed = members();
  for (int rank = 0; rank < size(); ++rank) {
    if (!has_begun(rank) || dead_[rank]) continue;
    if (!ended_[rank]) return fmt::format("rank {} still musters", rank);
    const Status& status = muster(rank).status();
    if (status.ok()) {
      const std::vector<bool>& mine = muster(rank).members();
      if (!mine[rank]) return fmt::format("rank {} is not among those it agreed on", rank);
      if (mine == agreed) continue;
      // Another group comes about only where its leader has been told that the first one's is lost,
      // and the other way round. Who is in both has followed one of them; the other's join fails.
      if (agreed[rank]) return "survivors do not agree who they are" + text();
      if (!given_up[rank]) return "survivors go on in two groups" + text();
      continue;
    }
    // The others go on without it; it hears so, or waits for them in vain.
    if (given_up[rank]) continue;
    bool names_missing = false;
    for (int other = 0; other < size(); ++other) {
      if (!there[other] && names_rank(status.message(), other)) names_missing = true;
    }
    const bool waited = status.message().find("still waits") != std::string::npos;
    if (status.code() == StatusCode::kTimeout && (names_missing || waited)) continue;
    return fmt::format("rank {} did not muster: {}", rank, status.message());
  }
  for (size_t rank = 0; rank < agreed.size(); ++rank) {
    if (agreed[rank] && !there[rank] && !dead_[rank]) {
      return fmt::format("rank {} is in, and has not come", rank);
    }
    if (!agreed[rank] && there[rank] && !given_up[rank] && !dead_[rank]) {
      return fmt::format("rank {} has come, and is left out", rank);
    }
  }
  return "";
}

}  // namespace ciuic::sim
