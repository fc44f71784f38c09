// SPDX-License-Identifier: Apache-2.0
// ordering_test.cc: streams wait for operations and operations for streams, and the host for
// neither; and each of these waits, left out, is caught by what the tests look at.

#include <gtest/gtest.h>

#include <future>
#include <optional>
#include <string>

#include "gpu_rank.h"
#include "values.h"

namespace ciuic::nccl_test {
namespace {

constexpr int64_t kCount = 1000;
constexpr DataType kType = DataType::kFloat32;

Bytes input(int rank) { return encode(kType, input_of(rank, kCount, kType)); }

Bytes sums(int size) {
  std::vector<std::vector<double>> inputs;
  for (int rank = 0; rank < size; ++rank) inputs.push_back(input_of(rank, kCount, kType));
  return encode(kType, reduced(inputs, kType, ReduceOp::kSum));
}

// An all_reduce in place of what a kernel writes that waits behind a gate on rank 1.
struct Scene {
  explicit Scene(GpuRank& rank) : gpu(rank), memory(rank.allocate(kCount * 4)) {
    if (is_held()) gate.emplace(rank);
    gpu.write(memory, input(gpu.options().rank), 0);
  }

  bool is_held() const { return gpu.options().rank == 1; }
  MutableBuffer buffer() const { return {memory, kCount, kType, gpu.device()}; }
  Result<Work> submit() {
    return gpu.communicator().all_reduce(buffer(), buffer(), ReduceOp::kSum, gpu.on_stream());
  }
  std::string meet() {  // over the CPU
    Result<Work> work = gpu.communicator().barrier();
    if (!work.ok()) return work.status().message();
    return work->wait().message();
  }
  Bytes result() const { return gpu.peek(memory, kCount * 4); }
  bool is_right() const { return result() == sums(gpu.options().size); }

  GpuRank& gpu;
  void* memory;
  std::optional<Gate> gate;
};

TEST(Ordering, NeitherTheHostNorAnotherStreamIsHeldUp) {
  expect_well(on_ranks(2, {}, [](GpuRank& gpu) -> std::string {
    Scene scene(gpu);
    Result<Work> work = scene.submit();
    if (!work.ok()) return work.status().message();
    const Status ordered = work->wait_on(gpu.stream());
    if (!ordered.ok()) return ordered.message();
    if (work->done()) return "it has ended before its input was there";
    // All have come so far, though rank 1's stream stands still.
    std::string met = scene.meet();
    if (!met.empty()) return met;
    if (work->done()) return "it has ended before the input of rank 1 was there";
    met = scene.meet();  // so that all have looked
    if (!met.empty()) return met;
    if (scene.gate) scene.gate->open();
    if (gpu.read(scene.memory, kCount * 4) != sums(2)) return "the stream did not wait";
    const Status ended = work->wait();
    return ended.ok() ? scene.meet() : ended.message();
  }));
}

TEST(Ordering, OperationsFollowOneAnotherAndTellTheirEnd) {
  expect_well(on_ranks(2, {}, [](GpuRank& gpu) -> std::string {
    Scene scene(gpu);
    std::vector<Work> works;
    std::promise<Status> told;
    for (int i = 0; i < 5; ++i) {
      Result<Work> work = scene.submit();
      if (!work.ok()) return work.status().message();
      works.push_back(*work);
    }
    works.back().on_done([&](const Status& status) { told.set_value(status); });
    const std::string met = scene.meet();
    if (!met.empty()) return met;
    if (scene.gate) scene.gate->open();
    const Status status = told.get_future().get();
    if (!status.ok()) return status.message();
    for (Work& work : works) {
      if (!work.done()) return "the last has ended before an earlier one";
    }
    std::vector<double> expected = decode(kType, sums(2));
    for (double& value : expected) value *= 16;  // each later one doubles
    return scene.result() == encode(kType, expected) ? scene.meet() : "another result";
  }));
}

TEST(Ordering, TheLegacyDefaultStreamIsTakenWhereNoneIsGiven) {
  expect_well(on_ranks(2, {}, [](GpuRank& gpu) -> std::string {
    void* memory = gpu.allocate(kCount * 4);
    const Bytes own = input(gpu.options().rank);
    if (gpu.fake().store(nullptr, memory, own.data(), own.size(), 20'000) != 0) return "no kernel";
    const MutableBuffer buffer{memory, kCount, kType, gpu.device()};
    Result<Work> work = gpu.communicator().all_reduce(buffer, buffer, ReduceOp::kSum);
    if (!work.ok()) return work.status().message();
    const Status status = work->wait();
    if (!status.ok()) return status.message();
    return gpu.peek(memory, own.size()) == sums(2) ? "" : "the operation did not wait";
  }));
}

TEST(Ordering, PreparedCallsRunAgain) {
  expect_well(on_ranks(2, {}, [](GpuRank& gpu) -> std::string {
    void* memory = gpu.allocate(kCount * 4);
    const MutableBuffer buffer{memory, kCount, kType, gpu.device()};
    const Call call = Call::all_reduce(buffer, buffer, ReduceOp::kSum);
    auto prepared = gpu.communicator().persistent({&call, 1}, gpu.on_stream());
    if (!prepared.ok()) return prepared.status().message();
    for (int i = 0; i < 3; ++i) {
      gpu.write(memory, input(gpu.options().rank), 300);
      Result<Work> work = prepared->start();
      if (!work.ok()) return work.status().message();
      const Status status = work->wait();
      if (!status.ok()) return status.message();
      if (gpu.peek(memory, kCount * 4) != sums(2)) return "another result";
    }
    return "";
  }));
}

// What a plant leaves out, and where.
struct Plant {
  const char* name;
  const char* dropped;
  bool in_submit;
};

class Plants : public testing::TestWithParam<Plant> {};

// With nothing left out, the same looks find nothing wrong: that is the first of them.
TEST_P(Plants, AreCaught) {
  const Plant plant = GetParam();
  const bool is_caught = plant.dropped[0] != '\0';
#ifdef __SANITIZE_THREAD__
  if (is_caught) GTEST_SKIP() << "it is a data race, which ThreadSanitizer reports by itself";
#endif
  const auto said = on_ranks(2, {}, [&](GpuRank& gpu) -> std::string {
    Scene scene(gpu);
    if (plant.in_submit) gpu.fake().drop(plant.dropped);
    Result<Work> work = scene.submit();
    gpu.fake().drop("");
    if (!work.ok()) return work.status().message();
    if (!plant.in_submit) gpu.fake().drop(plant.dropped);
    const Status ordered = work->wait_on(gpu.stream());
    gpu.fake().drop("");
    if (!ordered.ok()) return ordered.message();
    // Rank 0 looks while rank 1 is held, and at the end.
    bool is_early = false;
    if (!scene.is_held()) {
      is_early = plant.in_submit ? work->wait_for(is_caught ? 5'000 : 20).ok()
                                 : gpu.cuda().stream_synchronize(gpu.stream().handle) == 0;
    }
    const std::string met = scene.meet();
    if (!met.empty()) return met;
    if (scene.gate) scene.gate->open();
    const Status ended = work->wait();
    if (!ended.ok()) return ended.message();
    return is_early ? "early" : "";
  });
  EXPECT_EQ(said[0], is_caught ? "early" : "");
  EXPECT_EQ(said[1], "");
}

INSTANTIATE_TEST_SUITE_P(
    All, Plants,
    testing::Values(Plant{"nothing", "", true},
                    Plant{"the_operation_does_not_wait", "cudaStreamWaitEvent", true},
                    Plant{"its_end_is_not_marked", "cudaEventRecord", true},
                    Plant{"the_stream_does_not_wait", "cudaStreamWaitEvent", false}),
    [](const auto& each) { return std::string(each.param.name); });

}  // namespace
}  // namespace ciuic::nccl_test
