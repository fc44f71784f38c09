// SPDX-License-Identifier: Apache-2.0
// matching.cc: which send of one rank's plan meets which receive of another's.

#include "plan/matching.h"

#include <fmt/format.h>

#include <map>
#include <tuple>

#include "plan/validate.h"

namespace ciuic::plan {

namespace {

struct Receive {
  int step = 0;
  int stream = 0;
  bool met = false;
};

using StreamKey = std::tuple<int, int, int>;  // sender, receiver, lane

std::map<StreamKey, std::vector<Receive>> receives_of(const std::vector<Plan>& plans) {
  std::map<StreamKey, std::vector<Receive>> receives;
  for (int rank = 0; rank < static_cast<int>(plans.size()); ++rank) {
    const Plan& plan = plans[rank];
    for (int number = 0; number < static_cast<int>(plan.steps.size()); ++number) {
      const Step& step = plan.steps[number];
      if (step.kind == StepKind::kSend) continue;
      for (size_t peer = 0; peer < step.peers.size(); ++peer) {
        const StreamPlace& place = step.places[peer];
        receives[{step.peers[peer], rank, step.lane}].push_back({number, place.stream});
      }
    }
  }
  return receives;
}

}  // namespace

Result<std::vector<Message>> match(const std::vector<Plan>& plans) {
  std::map<StreamKey, std::vector<Receive>> receives = receives_of(plans);
  std::vector<Message> messages;
  for (int rank = 0; rank < static_cast<int>(plans.size()); ++rank) {
    const Plan& plan = plans[rank];
    for (int number = 0; number < static_cast<int>(plan.steps.size()); ++number) {
      const Step& step = plan.steps[number];
      if (step.kind != StepKind::kSend) continue;
      for (size_t index = 0; index < step.peers.size(); ++index) {
        const int peer = step.peers[index];
        const StreamPlace& place = step.places[index];
        std::vector<Receive>& there = receives[{rank, peer, step.lane}];
        if (place.position >= static_cast<int>(there.size())) {
          return Status(StatusCode::kInvalidArgument,
                        fmt::format("rank {}, {}: rank {} does not receive it", rank,
                                    step_text(plan, number), peer));
        }
        Receive& receive = there[place.position];
        receive.met = true;
        messages.push_back({rank, number, peer, receive.step, step.lane, place.position,
                            place.stream, receive.stream});
      }
    }
  }
  for (const auto& [key, list] : receives) {
    const auto& [sender, receiver, lane] = key;
    for (const Receive& receive : list) {
      if (receive.met) continue;
      return Status(StatusCode::kInvalidArgument,
                    fmt::format("rank {}, {}: rank {} does not send it", receiver,
                                step_text(plans[receiver], receive.step), sender));
    }
  }
  return messages;
}

}  // namespace ciuic::plan
