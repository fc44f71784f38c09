// SPDX-License-Identifier: Apache-2.0
// control_star.cc: messages under way on lines.

#include "sim/control_star.h"

#include <fmt/format.h>

#include <algorithm>

namespace ciuic::sim {

ControlStar::ControlStar(World* world, std::vector<int> actors, TimeNs latency_max, Random random)
    : world_(world),
      actors_(std::move(actors)),
      latency_max_(latency_max),
      random_(random),
      up_(actors_.size()),
      down_(actors_.size()) {
  for (size_t rank = 0; rank < actors_.size(); ++rank) {
    ends_.emplace_back(this, static_cast<int>(rank));
    up_[rank].latency = random_.spread(1, latency_max_);
    down_[rank].latency = random_.spread(1, latency_max_);
  }
}

void ControlStar::put(int to, Direction* direction, std::string bytes) {
  if (direction->ended || direction->dropped) return;
  const TimeNs latency = random_.between(direction->latency, latency_max_);
  direction->last_at = std::max(direction->last_at, world_->now() + latency);
  direction->flights.push_back({direction->last_at, std::move(bytes)});
  world_->wake(actors_[to], direction->last_at);
}

void ControlStar::print(int from, int to, const control::Message& message) const {
  static constexpr const char* kKinds[] = {"?",     "alive", "cause", "late",    "called",
                                           "leave", "ask",   "gone",  "missing", "decision"};
  fmt::print("{:>10} ns  rank {} -> {}  {} {} about {}, next {}: {} {}\n", world_->now(), from, to,
             kKinds[static_cast<int>(message.kind)], message.sequence, message.about, message.next,
             message.status.message(), message.text);
}

void ControlStar::End::send(int rank, const control::Message& message) {
  Direction& direction = star_->direction(rank_, rank);
  if (star_->prints_) star_->print(rank_, rank, message);
  if (star_->tamper_) {
    control::Message changed = message;
    if (!star_->tamper_(rank_, rank, &changed)) return;
    star_->put(rank, &direction, control::encode(changed));
  } else {
    star_->put(rank, &direction, control::encode(message));
  }
  if (!direction.planted.empty()) {
    star_->put(rank, &direction, std::exchange(direction.planted, std::string()));
  }
}

bool ControlStar::End::receive(int rank, control::Message* message) {
  Direction& direction = star_->direction(rank, rank_);
  if (direction.garbled || direction.flights.empty()) return false;
  if (direction.flights.front().at > star_->world_->now()) return false;
  Result<control::Message> taken = control::decode_message(direction.flights.front().bytes);
  direction.flights.pop_front();
  if (!taken.ok()) {
    direction.garbled = true;
    return false;
  }
  *message = std::move(*taken);
  return true;
}

bool ControlStar::End::is_lost(int rank) {
  const Direction& direction = star_->direction(rank, rank_);
  if (direction.garbled) return true;
  return star_->world_->now() >= direction.end_at && direction.flights.empty();
}

void ControlStar::end(int to, Direction* direction, bool loses) {
  if (direction->ended) return;
  direction->ended = true;
  if (direction->dropped) return;  // nor does its end arrive
  if (loses) direction->flights.clear();
  const TimeNs latency = random_.between(direction->latency, latency_max_);
  direction->end_at = world_->now() + latency;
  if (!loses) direction->end_at = std::max(direction->end_at, direction->last_at);
  world_->wake(actors_[to], direction->end_at);
}

void ControlStar::end_of(int rank, bool loses) {
  for (int other = 1; other < size(); ++other) {
    if (rank == 0) end(other, &down_[other], loses);
    if (rank == other) end(0, &up_[other], loses);
  }
}

void ControlStar::cut(int rank, bool loses, bool unseen) {
  for (int other = 1; other < size(); ++other) {
    if (rank != 0 && rank != other) continue;
    if (!unseen) end(other, &down_[other], loses);
    end(0, &up_[other], loses);
  }
}

void ControlStar::drop(int rank) {
  for (int other = 1; other < size(); ++other) {
    if (rank != 0 && rank != other) continue;
    for (Direction* direction : {&down_[other], &up_[other]}) {
      direction->dropped = true;
      direction->flights.clear();
    }
  }
}

void ControlStar::plant(int rank, std::string bytes) {
  for (int other = 1; other < size(); ++other) {
    if (rank == 0) down_[other].planted = bytes;
    if (rank == other) up_[other].planted = bytes;
  }
}

}  // namespace ciuic::sim
