// SPDX-License-Identifier: Apache-2.0
// plan.cc: adds steps to a plan, and works out their order.

#include "plan/plan.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/assert.h"

namespace ciuic::plan {

int64_t Partition::begin(int block, int64_t count) const {
  if (unit == Unit::kEach) return block * count;
  if (blocks <= 0) return 0;
  // floor(block * count / blocks), without the product that could overflow.
  const int64_t even = count / blocks;
  const int64_t rest = count % blocks;
  return block * even + block * rest / blocks;
}

int64_t Partition::begin(int block, const std::vector<int64_t>& sums) const {
  CIUIC_ASSERT(unit == Unit::kEach && sums.size() > 1);
  const int size = static_cast<int>(sums.size()) - 1;
  if (!owners.empty()) {
    int64_t elements = 0;
    for (int index = 0; index < block; ++index) {
      elements += sums[owners[index] + 1] - sums[owners[index]];
    }
    return elements;
  }
  const auto before = [&](int place) { return place / size * sums[size] + sums[place % size]; };
  return before(first + block) - before(first);
}

Step& Plan::send(std::vector<int> peers, BlockRange source, int lane) {
  CIUIC_ASSERT(!peers.empty());
  Step& step = steps.emplace_back();
  step.kind = StepKind::kSend;
  step.lane = lane;
  step.peers = std::move(peers);
  std::sort(step.peers.begin(), step.peers.end());
  step.source = source;
  step.target = nothing();
  return step;
}

Step& Plan::receive(int peer, BlockRange target, int lane) {
  Step& step = steps.emplace_back();
  step.kind = StepKind::kReceive;
  step.lane = lane;
  step.peers = {peer};
  step.source = nothing();
  step.target = target;
  return step;
}

Step& Plan::reduce(std::vector<int> peers, int own_place, BlockRange own, BlockRange target,
                   int lane) {
  CIUIC_ASSERT(!peers.empty());
  CIUIC_ASSERT(own_place >= 0 && own_place <= static_cast<int>(peers.size()));
  CIUIC_ASSERT(own.count == target.count);
  Step& step = steps.emplace_back();
  step.kind = StepKind::kReduce;
  step.lane = lane;
  step.peers = std::move(peers);
  std::sort(step.peers.begin(), step.peers.end());
  step.source = own;
  step.target = target;
  step.own_place = own_place;
  return step;
}

Step& Plan::copy(BlockRange source, BlockRange target) {
  CIUIC_ASSERT(source.count == target.count);
  Step& step = steps.emplace_back();
  step.kind = StepKind::kCopy;
  step.source = source;
  step.target = target;
  return step;
}

BlockRange Plan::add_scratch(int count) {
  Partition& partition = partitions[static_cast<int>(Space::kScratch)];
  partition.blocks += count;
  return scratches(partition.blocks - count, count);
}

namespace {

// Follows the list of steps and remembers who touched each block last.
class Hazards {
 public:
  explicit Hazards(Plan* plan) : plan_(plan), place_of_(plan->steps.size(), 0) {
    sources_.reserve(plan->steps.size());
    targets_.reserve(plan->steps.size());
  }

  void add(int number) {
    Step& step = plan_->steps[number];
    step.after.clear();
    sources_.push_back(access(step.source));
    targets_.push_back(access(step.target));
    const BlockRange source = sources_.back();
    const BlockRange target = targets_.back();
    for (int block = 0; block < source.count; ++block) {
      Block& touched = at(source, block);
      if (touched.writer >= 0) depend(number, touched.writer, targets_[touched.writer] == source);
      touched.readers.push_back(number);
    }
    for (int block = 0; block < target.count; ++block) {
      Block& touched = at(target, block);
      bool was_read = false;
      for (const int reader : touched.readers) {
        if (reader == number) continue;
        depend(number, reader, sources_[reader] == target);
        was_read = true;
      }
      // Who read it since came after its writer, so that this one does too.
      if (touched.writer >= 0 && !was_read) {
        depend(number, touched.writer, targets_[touched.writer] == target);
      }
      touched.writer = number;
      touched.readers.clear();
    }
  }

 private:
  struct Block {
    int writer = -1;
    std::vector<int> readers;  // since it was written
  };

  BlockRange access(BlockRange range) const {
    return range.count <= 0 ? nothing() : plan_->in_place(range);
  }

  Block& at(const BlockRange& access, int block) {
    std::vector<Block>& blocks = blocks_[static_cast<int>(access.space)];
    // The first block of what input and output have in common may be below 0.
    const size_t index =
        static_cast<size_t>(access.first - std::min(0, plan_->input_offset) + block);
    if (blocks.size() <= index) blocks.resize(index + 1);
    return blocks[index];
  }

  // Each earlier step is named once, however many blocks it shares with this one: place_of_ is
  // where in the list `after`, and is believed only if it says this very step.
  void depend(int number, int earlier, bool same_range) {
    std::vector<Dependency>& after = plan_->steps[number].after;
    const size_t place = place_of_[earlier];
    if (place < after.size() && after[place].step == earlier) {
      after[place].whole |= !same_range;
      return;
    }
    place_of_[earlier] = after.size();
    after.push_back({earlier, !same_range});
  }

  Plan* plan_;
  std::vector<size_t> place_of_;
  std::vector<BlockRange> sources_, targets_;  // in place
  std::vector<Block> blocks_[kSpaces];
};

}  // namespace

void Plan::finish() {
  Hazards hazards(this);
  std::map<std::pair<int, int>, int> stream_of;
  streams.clear();
  for (int number = 0; number < static_cast<int>(steps.size()); ++number) {
    hazards.add(number);
    Step& step = steps[number];
    step.places.clear();
    for (const int peer : step.peers) {
      const auto [found, added] =
          stream_of.try_emplace({peer, step.lane}, static_cast<int>(streams.size()));
      if (added) streams.push_back({peer, step.lane, 0, 0});
      Stream& stream = streams[found->second];
      int& messages = step.kind == StepKind::kSend ? stream.sends : stream.receives;
      step.places.push_back({found->second, messages++});
    }
  }
}

BlockRange Plan::in_place(BlockRange range) const {
  if (range.space != Space::kInput || !allows_in_place) return range;
  return {Space::kOutput, range.first + input_offset, range.count};
}

Elements Plan::elements(BlockRange range, int64_t count, const Counts* counts) const {
  const Partition& partition = partitions[static_cast<int>(range.space)];
  if (counts == nullptr || partition.unit == Partition::Unit::kSplit) {
    const int64_t begin = partition.begin(range.first, count);
    return {begin, partition.begin(range.first + range.count, count) - begin};
  }
  const bool by_input =
      range.space == Space::kInput || (range.space == Space::kScratch && partitions[0].blocks > 1);
  const std::vector<int64_t>& wanted = by_input ? counts->input : counts->output;
  const std::vector<int64_t>& other = by_input ? counts->output : counts->input;
  const std::vector<int64_t>& sums = wanted.empty() ? other : wanted;
  const int64_t begin = partition.begin(range.first, sums);
  return {begin, partition.begin(range.first + range.count, sums) - begin};
}

int64_t Plan::space_elements(Space space, int64_t count, const Counts* counts) const {
  return elements({space, 0, partitions[static_cast<int>(space)].blocks}, count, counts).size;
}

}  // namespace ciuic::plan
