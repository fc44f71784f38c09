// SPDX-License-Identifier: Apache-2.0
// execution_test.cc: runs all plans on real arrays of int64, chunk by chunk in random order, for
// awkward counts, out of place and in place, against sums made plainly.

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <map>
#include <random>
#include <tuple>

#include "plan/plan_cases.h"

namespace ciuic::plan {
namespace {

constexpr int64_t kChunk = 2;                   // elements
constexpr int64_t kUntouched = 0x5a5a5a5a5a5a;  // what stands in outputs before

using Array = std::vector<int64_t>;

struct Ranks {
  std::vector<Array> inputs;
  std::vector<Array> outputs;  // in place: inputs stand in them, and `inputs` is what they were
};

// Runs steps one chunk at a time, in an order that the seed decides; every chunk that may run may
// be next. Sends are copied on their way: that no buffer is too small to do without is for the
// prover.
class Execution {
 public:
  Execution(const std::vector<Plan>& plans, int64_t count, bool in_place, uint64_t seed,
            Ranks* data)
      : plans_(plans), count_(count), in_place_(in_place), random_(seed), data_(data) {
    for (const Plan& plan : plans) {
      scratch_.emplace_back(elements(plan, Space::kScratch), kUntouched);
      done_.emplace_back(plan.steps.size(), 0);
    }
    for (int rank = 0; rank < static_cast<int>(plans.size()); ++rank) {
      for (int step = 0; step < static_cast<int>(plans[rank].steps.size()); ++step) {
        open_.emplace_back(rank, step);
      }
    }
  }

  // False: nothing could run any more, though not all is done.
  bool run() {
    while (!open_.empty()) {
      const size_t first = random_() % open_.size();
      bool moved = false;
      for (size_t index = 0; index < open_.size() && !moved; ++index) {
        const size_t place = (first + index) % open_.size();
        const auto [rank, step] = open_[place];
        if (!advance(rank, step)) continue;
        moved = true;
        if (done_[rank][step] == chunks(rank, step)) {
          open_[place] = open_.back();
          open_.pop_back();
        }
      }
      if (!moved) return false;
    }
    return true;
  }

  static int64_t elements(const Plan& plan, Space space, int64_t count) {
    const Partition& partition = plan.partitions[static_cast<int>(space)];
    return partition.begin(partition.blocks, count);
  }

 private:
  int64_t elements(const Plan& plan, Space space) const { return elements(plan, space, count_); }

  std::pair<int64_t*, int64_t> bytes(int rank, BlockRange range) {
    const Plan& plan = plans_[rank];
    const Partition& partition = plan.partitions[static_cast<int>(range.space)];
    const int64_t begin = partition.begin(range.first, count_);
    const int64_t size = partition.begin(range.first + range.count, count_) - begin;
    switch (range.space) {
      case Space::kScratch: return {scratch_[rank].data() + begin, size};
      case Space::kOutput: return {data_->outputs[rank].data() + begin, size};
      case Space::kInput: break;
    }
    if (!in_place_) return {data_->inputs[rank].data() + begin, size};
    const Partition& output = plan.partitions[static_cast<int>(Space::kOutput)];
    return {data_->outputs[rank].data() + output.begin(plan.input_offset, count_) + begin, size};
  }

  BlockRange moved(const Step& step) const {
    return step.kind == StepKind::kReceive ? step.target : step.source;
  }

  int64_t chunks(int rank, int step) {
    const int64_t size = bytes(rank, moved(plans_[rank].steps[step])).second;
    return std::max<int64_t>(1, (size + kChunk - 1) / kChunk);
  }

  bool advance(int rank, int number) {
    const Step& step = plans_[rank].steps[number];
    const int64_t chunk = done_[rank][number];
    for (const Dependency& dependency : step.after) {
      const int64_t needed = dependency.whole ? chunks(rank, dependency.step) : chunk + 1;
      if (done_[rank][dependency.step] < needed) return false;
    }
    const auto [source, size] = bytes(rank, moved(step));
    const int64_t begin = std::min(size, chunk * kChunk);
    const int64_t end = std::min(size, begin + kChunk);
    const bool sends = step.kind == StepKind::kSend;
    for (size_t peer = 0; peer < step.peers.size(); ++peer) {
      const int from = sends ? rank : step.peers[peer];
      const int to = sends ? step.peers[peer] : rank;
      Stream& stream = streams_[{from, to, step.lane}];
      const StreamPlace& place = step.places[peer];
      if (sends && stream.sent != place.position) return false;
      if (!sends && (stream.received != place.position || stream.chunks.empty())) return false;
    }
    if (sends) {
      for (const int peer : step.peers) {
        Stream& stream = streams_[{rank, peer, step.lane}];
        stream.chunks.emplace_back(source + begin, source + end);
        if (chunk + 1 == chunks(rank, number)) ++stream.sent;
      }
    } else {
      receive(rank, number, begin, end, chunk + 1 == chunks(rank, number));
    }
    ++done_[rank][number];
    return true;
  }

  void receive(int rank, int number, int64_t begin, int64_t end, bool last) {
    const Step& step = plans_[rank].steps[number];
    Array sum(end - begin, 0);
    if (step.kind != StepKind::kReceive) {
      const int64_t* own = bytes(rank, step.source).first;
      for (int64_t i = begin; i < end; ++i) sum[i - begin] = own[i];
    }
    for (const int peer : step.peers) {
      Stream& stream = streams_[{peer, rank, step.lane}];
      const Array& chunk = stream.chunks.front();
      ASSERT_EQ(chunk.size(), sum.size());
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += chunk[i];
      stream.chunks.pop_front();
      if (last) ++stream.received;
    }
    int64_t* target = bytes(rank, step.target).first;
    for (int64_t i = begin; i < end; ++i) target[i] = sum[i - begin];
  }

  struct Stream {
    std::deque<Array> chunks;
    int sent = 0;  // whole messages
    int received = 0;
  };

  const std::vector<Plan>& plans_;
  const int64_t count_;
  const bool in_place_;
  std::mt19937_64 random_;
  Ranks* data_;
  std::vector<Array> scratch_;
  std::vector<std::vector<int64_t>> done_;  // chunks of [rank][step]
  std::vector<std::pair<int, int>> open_;
  std::map<std::tuple<int, int, int>, Stream> streams_;  // by (from, to, lane)
};

int64_t element(int rank, int64_t index) { return (int64_t{1} << (2 * rank)) + 1000003 * index; }

Ranks make_ranks(const PlanCase& plan_case, const std::vector<Plan>& plans, int64_t count,
                 bool in_place) {
  const bool gathers = plan_case.operation == Operation::kAllGather;
  Ranks data;
  for (int rank = 0; rank < static_cast<int>(plans.size()); ++rank) {
    Array input;
    for (int64_t i = 0; i < count; ++i) input.push_back(element(rank, i));
    Array output(gathers ? count * plans.size() : count, kUntouched);
    if (in_place)
      std::copy(input.begin(), input.end(), output.begin() + (gathers ? rank * count : 0));
    data.inputs.push_back(input);
    data.outputs.push_back(output);
  }
  return data;
}

// What must stand in the output of `rank`.
Array expected(const PlanCase& plan_case, int rank, int64_t count, const Array& before) {
  const int size = plan_case.layout.size();
  Array result;
  switch (plan_case.operation) {
    case Operation::kReduce:
      if (rank != plan_case.root) return before;
      [[fallthrough]];
    case Operation::kAllReduce:
      for (int64_t i = 0; i < count; ++i) {
        int64_t sum = 0;
        for (int other = 0; other < size; ++other) sum += element(other, i);
        result.push_back(sum);
      }
      return result;
    case Operation::kBroadcast:
      for (int64_t i = 0; i < count; ++i) result.push_back(element(plan_case.root, i));
      return result;
    case Operation::kAllGather:
      for (int other = 0; other < size; ++other) {
        for (int64_t i = 0; i < count; ++i) result.push_back(element(other, i));
      }
      return result;
    case Operation::kBarrier: break;
  }
  return before;
}

int run_case(const PlanCase& plan_case, const std::vector<Plan>& plans, int64_t count,
             bool in_place, uint64_t seed) {
  const Ranks before = make_ranks(plan_case, plans, count, in_place);
  Ranks data = before;
  const std::string text = plan_case.text() + ", count " + std::to_string(count) + ", seed " +
                           std::to_string(seed) + (in_place ? ", in place" : "");
  EXPECT_TRUE(Execution(plans, count, in_place, seed, &data).run()) << text;
  EXPECT_EQ(data.inputs, before.inputs) << text;
  for (int rank = 0; rank < plan_case.layout.size(); ++rank) {
    EXPECT_EQ(data.outputs[rank], expected(plan_case, rank, count, before.outputs[rank]))
        << text << ", rank " << rank;
  }
  return 1;
}

class ExecutionTest : public testing::TestWithParam<int> {};

TEST_P(ExecutionTest, AwkwardCounts) {
  const int size = GetParam();
  int runs = 0;
  uint64_t seed = 1;
  for (const PlanCase& plan_case : cases_of(size)) {
    if (plan_case.root != 0 && plan_case.root != size / 2 && plan_case.root != size - 1) continue;
    const std::vector<Plan> plans = plan_case.plans();
    std::vector<int64_t> counts = {0, 1, 4 * size + 3};
    if (plan_case.operation == Operation::kBarrier) counts = {0};
    const int blocks = plans[0].partitions[static_cast<int>(Space::kOutput)].blocks;
    for (int64_t count = blocks - 1; counts.size() > 1 && count <= blocks + 1; ++count) {
      if (count > 1) counts.push_back(count);
    }
    for (const int64_t count : counts) {
      for (const bool in_place : {false, true}) {
        runs += run_case(plan_case, plans, count, in_place, ++seed);
      }
    }
    if (testing::Test::HasFailure()) return;
  }
  std::printf("plans executed %d times (%d ranks)\n", runs, size);
}

INSTANTIATE_TEST_SUITE_P(Ranks, ExecutionTest, testing::Values(1, 2, 3, 4, 5, 6, 7, 8, 11));

}  // namespace
}  // namespace ciuic::plan
