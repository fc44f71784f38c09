// SPDX-License-Identifier: Apache-2.0
// execution_test.cc: runs all plans on real arrays of int64, chunk by chunk in random order, for
// awkward and uneven counts, out of place and in place, against results made plainly.

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <map>
#include <random>
#include <tuple>

#include "plan/plan_cases.h"
#include "plan/uneven.h"

namespace ciuic::plan {
namespace {

constexpr int64_t kChunk = 2;                   // elements
constexpr int64_t kUntouched = 0x5a5a5a5a5a5a;  // what stands in outputs before

using Array = std::vector<int64_t>;

// How much is moved, and where.
struct Binding {
  int64_t count = 0;
  std::vector<Counts> counts;  // by rank; none: all blocks have `count` elements
  bool in_place = false;
  uint64_t seed = 0;

  Elements elements(const Plan& plan, int rank, BlockRange range) const {
    return plan.elements(range, count, counts.empty() ? nullptr : &counts[rank]);
  }
  int64_t space_elements(const Plan& plan, int rank, Space space) const {
    const int blocks = plan.partitions[static_cast<int>(space)].blocks;
    return elements(plan, rank, {space, 0, blocks}).size;
  }
  // In place the smaller of input and output is a part of the other.
  bool is_within_output(const Plan& plan) const {
    return in_place && has_both(plan) && plan.partitions[0].blocks <= plan.partitions[1].blocks;
  }
  bool is_within_input(const Plan& plan) const {
    return in_place && has_both(plan) && plan.partitions[0].blocks > plan.partitions[1].blocks;
  }
  static bool has_both(const Plan& plan) {
    return plan.partitions[0].blocks > 0 && plan.partitions[1].blocks > 0;
  }
  int64_t input_at(const Plan& plan, int rank) const {
    return elements(plan, rank, {Space::kOutput, plan.input_offset, 0}).begin;
  }
  int64_t output_at(const Plan& plan, int rank) const {
    return elements(plan, rank, {Space::kInput, -plan.input_offset, 0}).begin;
  }
};

struct Ranks {
  std::vector<Array> inputs;
  std::vector<Array> outputs;
};

// Runs steps one chunk at a time, in an order that the seed decides; every chunk that may run may
// be next. Sends are copied on their way: that no buffer is too small to do without is for the
// prover.
class Execution {
 public:
  Execution(const std::vector<Plan>& plans, const Binding& binding, Ranks* data)
      : plans_(plans), binding_(binding), random_(binding.seed), data_(data) {
    for (int rank = 0; rank < static_cast<int>(plans.size()); ++rank) {
      scratch_.emplace_back(binding.space_elements(plans[rank], rank, Space::kScratch), kUntouched);
      done_.emplace_back(plans[rank].steps.size(), 0);
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

 private:
  std::pair<int64_t*, int64_t> bytes(int rank, BlockRange range) {
    const Plan& plan = plans_[rank];
    const auto [begin, size] = binding_.elements(plan, rank, range);
    int64_t* input = data_->inputs[rank].data();
    int64_t* output = data_->outputs[rank].data();
    if (binding_.is_within_output(plan)) input = output + binding_.input_at(plan, rank);
    if (binding_.is_within_input(plan)) output = input + binding_.output_at(plan, rank);
    switch (range.space) {
      case Space::kScratch: return {scratch_[rank].data() + begin, size};
      case Space::kOutput: return {output + begin, size};
      case Space::kInput: break;
    }
    return {input + begin, size};
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
  const Binding& binding_;
  std::mt19937_64 random_;
  Ranks* data_;
  std::vector<Array> scratch_;
  std::vector<std::vector<int64_t>> done_;  // chunks of [rank][step]
  std::vector<std::pair<int, int>> open_;
  std::map<std::tuple<int, int, int>, Stream> streams_;  // by (from, to, lane)
};

int64_t element(int rank, int64_t index) { return (int64_t{1} << (2 * rank)) + 1000003 * index; }

// Who has no input has garbage in its place, as a receiver's buffer of a broadcast has.
Ranks make_ranks(const PlanCase& plan_case, const std::vector<Plan>& plans,
                 const Binding& binding) {
  const int size = plan_case.layout.size();
  Ranks data;
  for (int rank = 0; rank < size; ++rank) {
    const Plan& plan = plans[rank];
    const bool gives = shape_of(plan_case.operation, size, rank, plan_case.root).input > 0;
    Array input(binding.space_elements(plan, rank, Space::kInput), kUntouched);
    for (size_t i = 0; gives && i < input.size(); ++i) {
      input[i] = element(rank, static_cast<int64_t>(i));
    }
    Array output(binding.space_elements(plan, rank, Space::kOutput), kUntouched);
    if (binding.is_within_output(plan)) {
      std::copy(input.begin(), input.end(), output.begin() + binding.input_at(plan, rank));
    }
    data.inputs.push_back(std::move(input));
    data.outputs.push_back(std::move(output));
  }
  return data;
}

// What must stand in the output of `rank`, which has `elements`; nothing where it has none.
Array expected(const PlanCase& plan_case, const std::vector<Plan>& plans, const Binding& binding,
               int rank, int64_t elements) {
  const int size = plan_case.layout.size();
  const auto at = [&](int giver) { return binding.elements(plans[giver], giver, input(rank)); };
  Array result;
  const auto add = [&](int giver, int64_t first, int64_t count) {
    for (int64_t i = first; i < first + count; ++i) result.push_back(element(giver, i));
  };
  const auto add_sums = [&](int64_t first) {
    for (int64_t i = first; i < first + elements; ++i) {
      int64_t sum = 0;
      for (int other = 0; other < size; ++other) sum += element(other, i);
      result.push_back(sum);
    }
  };
  switch (plan_case.operation) {
    case Operation::kReduce:
      if (rank == plan_case.root) add_sums(0);
      break;
    case Operation::kAllReduce: add_sums(0); break;
    case Operation::kReduceScatter: add_sums(at(rank).begin); break;
    case Operation::kBroadcast: add(plan_case.root, 0, elements); break;
    case Operation::kScatter: add(plan_case.root, at(plan_case.root).begin, elements); break;
    case Operation::kGather:
      if (rank != plan_case.root) break;
      [[fallthrough]];
    case Operation::kAllGather:
      for (int other = 0; other < size; ++other) {
        add(other, 0, binding.elements(plans[rank], rank, output(other)).size);
      }
      break;
    case Operation::kAllToAll:
      for (int other = 0; other < size; ++other) add(other, at(other).begin, at(other).size);
      break;
    default: break;
  }
  return result;
}

int run_case(const PlanCase& plan_case, const std::vector<Plan>& plans, const Binding& binding) {
  const Ranks before = make_ranks(plan_case, plans, binding);
  Ranks data = before;
  const std::string text = plan_case.text() + ", count " + std::to_string(binding.count) +
                           ", seed " + std::to_string(binding.seed) +
                           (binding.in_place ? ", in place" : "") +
                           (binding.counts.empty() ? "" : ", uneven");
  EXPECT_TRUE(Execution(plans, binding, &data).run()) << text;
  for (int rank = 0; rank < plan_case.layout.size(); ++rank) {
    const Plan& plan = plans[rank];
    const int64_t elements = binding.space_elements(plan, rank, Space::kOutput);
    Ranks after = before;
    Array result = expected(plan_case, plans, binding, rank, elements);
    if (result.empty()) {
      result = before.outputs[rank];
    } else if (binding.is_within_input(plan)) {
      std::copy(result.begin(), result.end(),
                after.inputs[rank].begin() + binding.output_at(plan, rank));
      result = before.outputs[rank];
    }
    EXPECT_EQ(data.inputs[rank], after.inputs[rank]) << text << ", rank " << rank;
    EXPECT_EQ(data.outputs[rank], result) << text << ", rank " << rank;
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
    std::vector<Binding> bindings;
    for (const int64_t count : counts) bindings.push_back({count, {}});
    for (int pattern = 0; plan_case.claim().uneven && pattern < kUnevenPatterns; ++pattern) {
      Binding& binding = bindings.emplace_back();
      for (int rank = 0; rank < size; ++rank) {
        binding.counts.push_back(
            uneven_counts(plan_case.operation, size, rank, plan_case.root, pattern));
      }
    }
    for (Binding& binding : bindings) {
      for (const bool in_place : {false, true}) {
        if (in_place && !allows_in_place(plan_case.operation)) continue;
        binding.in_place = in_place;
        binding.seed = ++seed;
        runs += run_case(plan_case, plans, binding);
      }
    }
    if (testing::Test::HasFailure()) return;
  }
  std::printf("plans executed %d times (%d ranks)\n", runs, size);
}

INSTANTIATE_TEST_SUITE_P(Ranks, ExecutionTest, testing::Values(1, 2, 3, 4, 5, 6, 7, 8, 11));

}  // namespace
}  // namespace ciuic::plan
