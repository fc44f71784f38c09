// SPDX-License-Identifier: Apache-2.0
// prover.cc: proves plans, part by part, the plain parts first.

#include "plan/prover.h"

#include <fmt/format.h>

#include <map>
#include <utility>

#include "plan/matching.h"
#include "plan/races.h"
#include "plan/range_size.h"
#include "plan/rendezvous.h"
#include "plan/symbolic.h"
#include "plan/validate.h"

namespace ciuic::plan {

static Status wrong(int rank, const Plan& plan, int step, const std::string& what) {
  return Status(StatusCode::kInvalidArgument,
                fmt::format("rank {}, {}: {}", rank, step_text(plan, step), what));
}

// What finish() filled in must agree with the steps: the engine believes it.
static Status check_streams(const Plan& plan, int rank) {
  struct Counted {
    int stream = -1;
    int sends = 0;
    int receives = 0;
  };
  std::map<std::pair<int, int>, Counted> counted;
  for (int number = 0; number < static_cast<int>(plan.steps.size()); ++number) {
    const Step& step = plan.steps[number];
    if (step.places.size() != step.peers.size()) {
      return wrong(rank, plan, number, "not as many places as peers");
    }
    for (size_t index = 0; index < step.peers.size(); ++index) {
      const StreamPlace& place = step.places[index];
      Counted& stream = counted[{step.peers[index], step.lane}];
      if (stream.stream < 0) stream.stream = place.stream;
      int& messages = step.kind == StepKind::kSend ? stream.sends : stream.receives;
      if (place.stream != stream.stream || place.position != messages++) {
        return wrong(rank, plan, number, "its place in the stream is not that of the list");
      }
    }
  }
  for (const auto& [key, stream] : counted) {
    const bool known = stream.stream >= 0 && stream.stream < static_cast<int>(plan.streams.size());
    if (!known || plan.streams[stream.stream].peer != key.first ||
        plan.streams[stream.stream].lane != key.second ||
        plan.streams[stream.stream].sends != stream.sends ||
        plan.streams[stream.stream].receives != stream.receives) {
      return Status(StatusCode::kInvalidArgument,
                    fmt::format("plan of rank {}: the stream with rank {}, lane {} is wrong", rank,
                                key.first, key.second));
    }
  }
  return {};
}

static Status check_sizes(const std::vector<Plan>& plans, const std::vector<Message>& messages) {
  for (int rank = 0; rank < static_cast<int>(plans.size()); ++rank) {
    const Plan& plan = plans[rank];
    for (int number = 0; number < static_cast<int>(plan.steps.size()); ++number) {
      const Step& step = plan.steps[number];
      const bool both = step.kind == StepKind::kReduce || step.kind == StepKind::kCopy;
      if (both && size_of(plan, step.source) != size_of(plan, step.target)) {
        return wrong(rank, plan, number, "source and target differ in size");
      }
    }
  }
  for (const Message& message : messages) {
    const Plan& from = plans[message.sender];
    const Plan& to = plans[message.receiver];
    const Step& receive = to.steps[message.receive_step];
    if (size_of(from, from.steps[message.send_step].source) == size_of(to, receive.target)) {
      continue;
    }
    return wrong(message.receiver, to, message.receive_step,
                 fmt::format("differs in size from what rank {} sends in its {}", message.sender,
                             step_text(from, message.send_step)));
  }
  return {};
}

static Status check_untouched_output(const Claim& claim, const std::vector<Plan>& plans) {
  if (claim.operation != Operation::kReduce) return {};
  for (int rank = 0; rank < static_cast<int>(plans.size()); ++rank) {
    const Plan& plan = plans[rank];
    for (int number = 0; rank != claim.root && number < static_cast<int>(plan.steps.size());
         ++number) {
      const Step& step = plan.steps[number];
      const bool writes = step.kind != StepKind::kSend && step.target.count > 0;
      if (writes && step.target.space == Space::kOutput) {
        return wrong(rank, plan, number, "of a reduce, only the root's output may be written");
      }
    }
  }
  return {};
}

Status prove(const Claim& claim, const std::vector<Plan>& plans) {
  const int size = static_cast<int>(plans.size());
  if (size == 0 || (has_root(claim.operation) && (claim.root < 0 || claim.root >= size))) {
    return Status(StatusCode::kInvalidArgument, "no ranks, or a root that is none of them");
  }
  for (int rank = 0; rank < size; ++rank) {
    CIUIC_RETURN_IF_ERROR(validate(plans[rank], size, rank));
    CIUIC_RETURN_IF_ERROR(check_streams(plans[rank], rank));
  }
  CIUIC_RETURN_IF_ERROR(check_untouched_output(claim, plans));
  const Result<std::vector<Message>> messages = match(plans);
  if (!messages.ok()) return messages.status();
  CIUIC_RETURN_IF_ERROR(check_sizes(plans, *messages));
  for (int rank = 0; rank < size; ++rank) {
    CIUIC_RETURN_IF_ERROR(check_races(plans[rank], rank));
  }
  CIUIC_RETURN_IF_ERROR(check_values(claim, plans, *messages));
  // One chunk a message, and several: a message may then be half way when another must move.
  for (const int chunks : {1, 3}) {
    CIUIC_RETURN_IF_ERROR(check_rendezvous(plans, *messages, chunks));
  }
  return {};
}

}  // namespace ciuic::plan
