// SPDX-License-Identifier: Apache-2.0
// groups_test.cc: several groups on the same GPUs, and what is left of one.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <string>

#include "gpu_rank.h"
#include "values.h"

namespace ciuic::nccl_test {
namespace {

constexpr DataType kFloat = DataType::kFloat32;

struct Sum {
  MutableBuffer buffer;
  Work work;
  Status status;
};

// Adds up `value` in a group.
Sum add(GpuRank& gpu, Communicator& group, double value) {
  Sum sum{{gpu.allocate(4), 1, kFloat, gpu.device()}, {}, {}};
  gpu.write(sum.buffer.data, encode(kFloat, {value}), 200);
  Result<Work> work = group.all_reduce(sum.buffer, sum.buffer, ReduceOp::kSum, gpu.on_stream());
  sum.status = work.status();
  if (work.ok()) sum.work = *work;
  return sum;
}

std::string expect(GpuRank& gpu, Sum& sum, double value) {
  if (sum.status.ok()) sum.status = sum.work.wait();
  if (!sum.status.ok()) return sum.status.message();
  const double found = decode(kFloat, gpu.peek(sum.buffer.data, 4))[0];
  return found == value ? "" : std::to_string(found) + " instead of " + std::to_string(value);
}

TEST(Groups, PartsOfAGroupWorkBesideIt) {
  expect_well(on_ranks(4, {}, [](GpuRank& gpu) -> std::string {
    const int rank = gpu.options().rank;
    auto part = gpu.communicator().split(rank % 2, -rank);
    if (!part.ok()) return part.status().message();
    Sum in_part = add(gpu, **part, rank);
    Sum in_all = add(gpu, gpu.communicator(), rank);
    const std::string wrong = expect(gpu, in_part, rank % 2 == 0 ? 2 : 4);
    return wrong.empty() ? expect(gpu, in_all, 6) : wrong;
  }));
}

// As the operations of each have an order of their own.
TEST(Groups, TwoAreCalledInOppositeOrders) {
  expect_well(on_ranks(2, {}, [](GpuRank& gpu) -> std::string {
    const int rank = gpu.options().rank;
    auto other = gpu.communicator().subgroup(std::vector<int>{0, 1});
    if (!other.ok()) return other.status().message();
    Communicator& first = rank == 0 ? gpu.communicator() : **other;
    Communicator& second = rank == 0 ? **other : gpu.communicator();
    Sum one = add(gpu, first, rank + 1);
    Sum two = add(gpu, second, rank + 1);
    const std::string wrong = expect(gpu, one, 3);
    return wrong.empty() ? expect(gpu, two, 3) : wrong;
  }));
}

TEST(Groups, SurvivorsGoOn) {
  const auto said = on_ranks(3, {}, [](GpuRank& gpu) -> std::string {
    const int rank = gpu.options().rank;
    Sum first = add(gpu, gpu.communicator(), 1);  // so that all have joined
    const std::string wrong = expect(gpu, first, 3);
    if (!wrong.empty()) return wrong;
    if (rank == 1) ::kill(::getpid(), SIGKILL);
    Sum lost = add(gpu, gpu.communicator(), 1);
    if (expect(gpu, lost, 3).empty()) return "rank 1 is not missed";
    auto rest = gpu.communicator().shrink();
    if (!rest.ok()) return rest.status().message();
    Sum sum = add(gpu, **rest, rank + 1);
    return expect(gpu, sum, 4);
  });
  EXPECT_EQ(said[0], "");
  EXPECT_EQ(said[2], "");
}

TEST(Groups, ARankCanHaveAGroupOfItsOwn) {
  expect_well(on_ranks(2, {}, [](GpuRank& gpu) -> std::string {
    const std::vector<int> alone = {gpu.options().rank};
    auto own = gpu.communicator().subgroup(alone);
    if (!own.ok()) return own.status().message();
    Sum sum = add(gpu, **own, 5);
    return expect(gpu, sum, 5);
  }));
}

}  // namespace
}  // namespace ciuic::nccl_test
