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
#include "plan/uneven.h"
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

// Whether two ranges have the same number of elements, whatever the counts are.
static bool same_size(const Claim& claim, const std::vector<Plan>& plans, int rank,
                      BlockRange range, int other_rank, BlockRange other) {
  const int size = static_cast<int>(plans.size());
  return size_of(plans[rank], range) == size_of(plans[other_rank], other) &&
         (!claim.uneven ||
          uneven_size(claim.operation, plans[rank], size, rank, range) ==
              uneven_size(claim.operation, plans[other_rank], size, other_rank, other));
}

static Status check_sizes(const Claim& claim, const std::vector<Plan>& plans,
                          const std::vector<Message>& messages) {
  for (int rank = 0; rank < static_cast<int>(plans.size()); ++rank) {
    const Plan& plan = plans[rank];
    for (int number = 0; number < static_cast<int>(plan.steps.size()); ++number) {
      const Step& step = plan.steps[number];
      const bool both = step.kind == StepKind::kReduce || step.kind == StepKind::kCopy;
      if (both && !same_size(claim, plans, rank, step.source, rank, step.target)) {
        return wrong(rank, plan, number, "source and target differ in size");
      }
      for (const Dependency& dependency : step.after) {
        const BlockRange earlier = moved(plan.steps[dependency.step]);
        if (dependency.whole || same_size(claim, plans, rank, earlier, rank, moved(step))) continue;
        return wrong(rank, plan, number,
                     fmt::format("comes after {} chunk by chunk, of another size",
                                 step_text(plan, dependency.step)));
      }
    }
  }
  for (const Message& message : messages) {
    const Plan& from = plans[message.sender];
    const Plan& to = plans[message.receiver];
    const BlockRange sent = from.steps[message.send_step].source;
    const BlockRange received = to.steps[message.receive_step].target;
    if (same_size(claim, plans, message.sender, sent, message.receiver, received)) continue;
    return wrong(message.receiver, to, message.receive_step,
                 fmt::format("differs in size from what rank {} sends in its {}", message.sender,
                             step_text(from, message.send_step)));
  }
  return {};
}

// Who gets nothing has no output that could be written, and who gives nothing no input.
static Status check_absent_buffers(const Claim& claim, const std::vector<Plan>& plans) {
  if (claim.operation == Operation::kBarrier) return {};
  const int size = static_cast<int>(plans.size());
  for (int rank = 0; rank < size; ++rank) {
    const Plan& plan = plans[rank];
    const Shape shape = shape_of(claim.operation, size, rank, claim.root);
    for (int number = 0; number < static_cast<int>(plan.steps.size()); ++number) {
      const Step& step = plan.steps[number];
      const auto touches = [&](Space space) {
        return (step.kind != StepKind::kReceive && step.source.count > 0 &&
                step.source.space == space) ||
               (step.kind != StepKind::kSend && step.target.count > 0 &&
                step.target.space == space);
      };
      if (shape.output == 0 && touches(Space::kOutput)) {
        return wrong(rank, plan, number, "only the root has an output");
      }
      if (shape.input == 0 && touches(Space::kInput)) {
        return wrong(rank, plan, number, "only the root has an input");
      }
    }
  }
  return {};
}

// In uneven forms each block must be known by the rank whose it is.
static Status check_owners(const Claim& claim, const std::vector<Plan>& plans) {
  const int size = static_cast<int>(plans.size());
  for (int rank = 0; rank < size; ++rank) {
    const Shape shape = shape_of(claim.operation, size, rank, claim.root);
    for (int space = 0; space < kSpaces; ++space) {
      const Partition& partition = plans[rank].partitions[space];
      if (partition.blocks == 0) continue;
      const int blocks = space == 0 ? shape.input : shape.output;
      const bool is_buffer = space < 2 && blocks > 0;
      const int first = blocks == 1 ? rank : 0;
      if (partition.unit == Partition::Unit::kEach &&
          (!is_buffer || size == 1 || partition.first == first)) {
        continue;
      }
      return Status(StatusCode::kInvalidArgument,
                    fmt::format("plan of rank {}: its {} cannot be of uneven counts", rank,
                                name_of(static_cast<Space>(space))));
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
  CIUIC_RETURN_IF_ERROR(check_absent_buffers(claim, plans));
  if (claim.uneven) CIUIC_RETURN_IF_ERROR(check_owners(claim, plans));
  const Result<std::vector<Message>> messages = match(plans);
  if (!messages.ok()) return messages.status();
  for (int rank = 0; rank < size; ++rank) {
    CIUIC_RETURN_IF_ERROR(check_races(plans[rank], rank));
  }
  CIUIC_RETURN_IF_ERROR(check_sizes(claim, plans, *messages));
  CIUIC_RETURN_IF_ERROR(check_values(claim, plans, *messages));
  // One chunk a message, and several: a message may then be half way when another must move.
  for (const int chunks : {1, 3}) {
    CIUIC_RETURN_IF_ERROR(check_rendezvous(plans, *messages, chunks));
  }
  return {};
}

}  // namespace ciuic::plan
