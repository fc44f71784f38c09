// SPDX-License-Identifier: Apache-2.0
// validate.cc: whether one rank's plan is well formed: what can be said without the others' plans.

#include "plan/validate.h"

#include <fmt/format.h>

#include <map>

namespace ciuic::plan {

const char* name_of(StepKind kind) {
  constexpr const char* kNames[] = {"send", "receive", "reduce", "copy"};
  return kNames[static_cast<int>(kind)];
}

const char* name_of(Space space) {
  constexpr const char* kNames[] = {"input", "output", "scratch"};
  return kNames[static_cast<int>(space)];
}

static std::string range_text(BlockRange range) {
  if (range.count == 0) return "nothing";
  if (range.count == 1) return fmt::format("{} {}", name_of(range.space), range.first);
  return fmt::format("{} {}..{}", name_of(range.space), range.first, range.first + range.count - 1);
}

std::string step_text(const Plan& plan, int number) {
  const Step& step = plan.steps[number];
  std::string text = fmt::format("step {} ({}", number, name_of(step.kind));
  if (!step.peers.empty()) {
    text += fmt::format(" {} {}", step.kind == StepKind::kSend ? "to" : "from",
                        fmt::join(step.peers, ","));
  }
  if (step.kind != StepKind::kReceive) text += " of " + range_text(step.source);
  if (step.kind != StepKind::kSend) text += " into " + range_text(step.target);
  return text + ")";
}

namespace {

class Validation {
 public:
  Validation(const Plan& plan, int size, int rank) : plan_(plan), size_(size), rank_(rank) {}

  Status run() {
    if (plan_.steps.size() > static_cast<size_t>(kMaxSteps)) {
      return wrong(fmt::format("the plan has {} steps", plan_.steps.size()));
    }
    for (int space = 0; space < kSpaces; ++space) {
      const int blocks = plan_.partitions[space].blocks;
      const int first = plan_.partitions[space].first;
      if (blocks < 0 || blocks > kMaxBlocks) {
        return wrong(fmt::format("{} has {} blocks", name_of(static_cast<Space>(space)), blocks));
      }
      if (first < 0 || first >= size_) {
        return wrong(fmt::format("the first block of {} is rank {}'s",
                                 name_of(static_cast<Space>(space)), first));
      }
      CIUIC_RETURN_IF_ERROR(check_owners(static_cast<Space>(space)));
    }
    CIUIC_RETURN_IF_ERROR(check_aliasing());
    for (int number = 0; number < static_cast<int>(plan_.steps.size()); ++number) {
      CIUIC_RETURN_IF_ERROR(check_step(number));
    }
    for (const auto& [stream, messages] : messages_) {
      if (messages > kMaxStreamMessages) {
        return wrong(fmt::format("{} messages in one stream with rank {}", messages, stream.peer));
      }
    }
    return {};
  }

 private:
  struct Key {
    int peer;
    int lane;
    bool send;
    auto operator<=>(const Key&) const = default;
  };

  Status wrong(const std::string& what) const {
    return Status(StatusCode::kInvalidArgument, fmt::format("plan of rank {}: {}", rank_, what));
  }
  Status wrong(int number, const std::string& what) const {
    return wrong(step_text(plan_, number) + ": " + what);
  }

  Status check_owners(Space space) const {
    const Partition& partition = plan_.partitions[static_cast<int>(space)];
    const std::vector<int>& owners = partition.owners;
    if (owners.empty()) return {};
    if (space != Space::kScratch || partition.unit != Partition::Unit::kEach ||
        owners.size() != static_cast<size_t>(partition.blocks) || partition.first != 0) {
      return wrong(fmt::format("{} cannot have these owners", name_of(space)));
    }
    for (const int owner : owners) {
      if (owner < 0 || owner >= size_) return wrong(fmt::format("owner {} outside", owner));
    }
    return {};
  }

  // In place, input blocks are output blocks, and so must be of the same size and inside.
  Status check_aliasing() const {
    const Partition& input = plan_.partitions[static_cast<int>(Space::kInput)];
    const Partition& output = plan_.partitions[static_cast<int>(Space::kOutput)];
    if (plan_.input_offset < -kMaxBlocks || plan_.input_offset > kMaxBlocks) {
      return wrong(fmt::format("input_offset is {}", plan_.input_offset));
    }
    if (!plan_.allows_in_place || input.blocks == 0 || output.blocks == 0) return {};
    const bool whole = input.blocks == 1 && output.blocks == 1;
    const bool alike = whole || (input.unit == output.unit &&
                                 (input.unit == Partition::Unit::kEach ||
                                  (input.blocks == output.blocks && plan_.input_offset == 0)));
    if (!alike) return wrong("the partitions of input and output cannot be in place");
    const int end = plan_.input_offset + input.blocks;  // in blocks of the output
    const bool within_output = plan_.input_offset >= 0 && end <= output.blocks;
    const bool within_input = plan_.input_offset <= 0 && end >= output.blocks;
    if (within_output || within_input) return {};
    return wrong("in place, neither of input and output would lie within the other");
  }

  Status check_step(int number) {
    const Step& step = plan_.steps[number];
    const bool reads = step.kind != StepKind::kReceive;
    const bool writes = step.kind != StepKind::kSend;
    if (step.lane < 0 || step.lane > kMaxLane) return wrong(number, "lane out of bounds");
    CIUIC_RETURN_IF_ERROR(check_peers(number));
    if (reads && !in_bounds(step.source)) return wrong(number, "source out of bounds");
    if (writes && !in_bounds(step.target)) return wrong(number, "target out of bounds");
    if (writes && step.target.count > 0 && step.target.space == Space::kInput) {
      return wrong(number, "writes the input");
    }
    if (step.kind == StepKind::kReduce &&
        (step.own_place < 0 || step.own_place > static_cast<int>(step.peers.size()))) {
      return wrong(number, fmt::format("own_place is {}", step.own_place));
    }
    if (reads && writes && overlap_in_part(step.source, step.target)) {
      return wrong(number, "source and target overlap in part");
    }
    return {};
  }

  Status check_peers(int number) {
    const Step& step = plan_.steps[number];
    const size_t count = step.peers.size();
    if (step.kind == StepKind::kCopy && count != 0) return wrong(number, "a copy has no peers");
    if (step.kind == StepKind::kReceive && count != 1) {
      return wrong(number, "a receive has one peer");
    }
    if (step.kind != StepKind::kCopy && count == 0) return wrong(number, "no peer");
    int last = -1;
    for (const int peer : step.peers) {
      if (peer < 0 || peer >= size_) return wrong(number, fmt::format("peer {} outside", peer));
      if (peer == rank_) return wrong(number, "a rank is no peer of itself");
      if (peer <= last) return wrong(number, "peers are not ascending");
      last = peer;
      ++messages_[{peer, step.lane, step.kind == StepKind::kSend}];
    }
    return {};
  }

  bool in_bounds(BlockRange range) const {
    const int blocks = plan_.partitions[static_cast<int>(range.space)].blocks;
    return range.count == 0 || (range.first >= 0 && range.count > 0 && range.first <= blocks &&
                                range.count <= blocks - range.first);
  }

  bool overlap_in_part(BlockRange a, BlockRange b) const {
    a = plan_.in_place(a);
    b = plan_.in_place(b);
    if (a.count == 0 || b.count == 0 || a.space != b.space || a == b) return false;
    return a.first < b.first + b.count && b.first < a.first + a.count;
  }

  const Plan& plan_;
  const int size_;
  const int rank_;
  std::map<Key, int> messages_;
};

}  // namespace

Status validate(const Plan& plan, int size, int rank) { return Validation(plan, size, rank).run(); }

}  // namespace ciuic::plan
