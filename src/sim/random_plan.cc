// SPDX-License-Identifier: Apache-2.0
// random_plan.cc: draws transfers, and splits them into the ranks' plans.

#include "sim/random_plan.h"

#include <algorithm>
#include <array>

namespace ciuic::sim {
namespace {

using plan::BlockRange;
using plan::Space;

class Drawing {
 public:
  Drawing(Random* random, int ranks, bool in_place) : random_(*random), ranks_(ranks) {
    blocks_ = static_cast<int>(random_.between(1, 6));
    const bool each = random_.chance(30);
    defined_.resize(ranks);
    plans_.resize(ranks);
    for (plan::Plan& plan : plans_) {
      plan.algorithm = "random";
      for (plan::Partition& partition : plan.partitions) {
        partition = {blocks_, each ? plan::Partition::Unit::kEach : plan::Partition::Unit::kSplit};
      }
    }
    for (auto& spaces : defined_) {
      for (auto& blocks : spaces) blocks.assign(blocks_, false);
      spaces[0].assign(blocks_, true);
      if (in_place) spaces[1].assign(blocks_, true);
    }
  }

  RandomPlan draw() {
    const int64_t actions = random_.between(1, 6 * ranks_);
    for (int64_t i = 0; i < actions; ++i) draw_action();
    RandomPlan drawn;
    for (plan::Plan& plan : plans_) {
      plan.finish();
      drawn.plans.push_back(std::make_shared<const plan::Plan>(std::move(plan)));
    }
    drawn.actions = std::move(actions_);
    for (const auto& spaces : defined_) drawn.defined.push_back(spaces[1]);
    return drawn;
  }

 private:
  int draw_rank() { return static_cast<int>(random_.between(0, ranks_ - 1)); }

  // Blocks [first, first + count) of a space in which all of them have a value on the rank.
  BlockRange defined_range(int rank, int first, int count) {
    for (int tries = 0; tries < 3; ++tries) {
      const auto space = static_cast<Space>(random_.between(0, 2));
      const auto& blocks = defined_[rank][static_cast<int>(space)];
      if (std::all_of(blocks.begin() + first, blocks.begin() + first + count,
                      [](bool is_defined) { return is_defined; })) {
        return {space, first, count};
      }
    }
    return {Space::kInput, first, count};
  }

  void define(int rank, const BlockRange& range) {
    auto& blocks = defined_[rank][static_cast<int>(range.space)];
    std::fill_n(blocks.begin() + range.first, range.count, true);
  }

  void draw_action() {
    const int first = static_cast<int>(random_.between(0, blocks_ - 1));
    int count = random_.chance(70) ? 1 : static_cast<int>(random_.between(0, blocks_ - first));
    const BlockRange target{random_.chance(50) ? Space::kOutput : Space::kScratch, first, count};
    const int lane = static_cast<int>(random_.between(0, 2));
    const int rank = draw_rank();
    const int64_t kind = ranks_ == 1 ? 0 : random_.between(0, 9);
    if (kind == 0) {
      const BlockRange source = defined_range(rank, first, count);
      plans_[rank].copy(source, target);
      actions_.push_back({plan::StepKind::kCopy, rank, {}, {}, source, target});
      define(rank, target);
    } else if (kind < 6) {
      publish(rank, target, lane);
    } else {
      fold(rank, target, lane);
    }
  }

  // One rank's block goes to several others.
  void publish(int rank, const BlockRange& target, int lane) {
    const BlockRange source = defined_range(rank, target.first, target.count);
    std::vector<int> peers;
    const int percent = static_cast<int>(random_.between(10, 100));
    for (int peer = 0; peer < ranks_; ++peer) {
      if (peer != rank && random_.chance(percent)) peers.push_back(peer);
    }
    if (peers.empty()) peers.push_back((rank + 1) % ranks_);
    plans_[rank].send(peers, source, lane);
    for (const int peer : peers) {
      plans_[peer].receive(rank, target, lane);
      actions_.push_back({plan::StepKind::kReceive, peer, {rank}, source, {}, target});
      define(peer, target);
    }
  }

  // Several ranks' blocks are added to one's own.
  void fold(int rank, const BlockRange& target, int lane) {
    const BlockRange own = defined_range(rank, target.first, target.count);
    const BlockRange source{Space::kInput, target.first, target.count};
    std::vector<int> peers;
    const int percent = static_cast<int>(random_.between(10, 100));
    for (int peer = 0; peer < ranks_; ++peer) {
      if (peer != rank && random_.chance(percent)) peers.push_back(peer);
    }
    if (peers.empty()) peers.push_back((rank + 1) % ranks_);
    for (const int peer : peers) plans_[peer].send({rank}, source, lane);
    plans_[rank].reduce(peers, static_cast<int>(random_.between(0, peers.size())), own, target,
                        lane);
    actions_.push_back({plan::StepKind::kReduce, rank, peers, source, own, target});
    define(rank, target);
  }

  Random& random_;
  const int ranks_;
  int blocks_ = 0;
  std::vector<plan::Plan> plans_;
  std::vector<std::array<std::vector<bool>, plan::kSpaces>> defined_;  // by rank, space, block
  std::vector<RandomPlan::Action> actions_;
};

}  // namespace

RandomPlan random_plan(Random* random, int ranks, bool in_place) {
  return Drawing(random, ranks, in_place).draw();
}

std::vector<std::vector<uint8_t>> run_reference(const RandomPlan& plan, int64_t count,
                                                const std::vector<std::vector<uint8_t>>& inputs,
                                                bool in_place) {
  const plan::Partition& partition = plan.plans[0]->partitions[0];
  const size_t bytes = static_cast<size_t>(partition.begin(partition.blocks, count));
  std::vector<std::vector<uint8_t>> memory[plan::kSpaces];
  memory[0] = inputs;
  memory[1].assign(inputs.size(), std::vector<uint8_t>(bytes));
  memory[2] = memory[1];
  const auto at = [&](int rank, const BlockRange& range, int64_t i) -> uint8_t& {
    auto space = static_cast<int>(range.space);
    if (in_place && space == 1) space = 0;
    return memory[space][rank][static_cast<size_t>(partition.begin(range.first, count) + i)];
  };
  for (const RandomPlan::Action& action : plan.actions) {
    const BlockRange& target = action.target;
    const int64_t elements =
        partition.begin(target.first + target.count, count) - partition.begin(target.first, count);
    for (int64_t i = 0; i < elements; ++i) {
      uint8_t value = 0;
      if (action.kind != plan::StepKind::kReceive) value = at(action.rank, action.own, i);
      for (const int from : action.from) value += at(from, action.source, i);
      at(action.rank, target, i) = value;
    }
  }
  return in_place ? memory[0] : memory[1];
}

}  // namespace ciuic::sim
