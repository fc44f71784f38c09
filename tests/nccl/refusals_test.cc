// SPDX-License-Identifier: Apache-2.0
// refusals_test.cc: what is not taken is named before anything is sent, and the group goes on.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "gpu_rank.h"
#include "values.h"

namespace ciuic::nccl_test {
namespace {

using testing::HasSubstr;

constexpr DataType kFloat = DataType::kFloat32;

class Asker {
 public:
  explicit Asker(GpuRank& gpu) : gpu_(gpu), memory_(gpu.allocate(64)) {}

  MutableBuffer on_gpu(int64_t count = 4, DataType dtype = kFloat) const {
    return {memory_, count, dtype, gpu_.device()};
  }
  MutableBuffer on_cpu() { return {floats_, 4, kFloat, {}}; }

  // "" where it was refused with that code, and words that hold `text`.
  std::string refuses(const std::vector<Call>& calls, StatusCode code, const std::string& text) {
    Result<Work> work = gpu_.communicator().submit(calls, gpu_.on_stream());
    if (work.ok()) return "not refused: " + text;
    const Status& status = work.status();
    if (status.code() != code) return std::string(name_of(status.code())) + ": " + status.message();
    if (status.message().find(text) == std::string::npos) return status.message();
    return status.message().find("othing was sent") == std::string::npos
               ? "it does not say that nothing was sent: " + status.message()
               : "";
  }

  // One that is well.
  std::string works() {
    gpu_.write(memory_, encode(kFloat, {1, 2, 3, 4}), 0);
    Result<Work> work =
        gpu_.communicator().all_reduce(on_gpu(), on_gpu(), ReduceOp::kSum, gpu_.on_stream());
    const Status status = work.ok() ? work->wait() : work.status();
    if (!status.ok()) return status.message();
    return gpu_.peek(memory_, 4) == encode(kFloat, {1.0 * gpu_.options().size}) ? "" : "wrong";
  }

 private:
  GpuRank& gpu_;
  void* memory_;
  float floats_[4] = {};
};

std::string first_of(std::initializer_list<std::string> said) {
  for (const std::string& each : said) {
    if (!each.empty()) return each;
  }
  return "";
}

TEST(Refusals, OfDevices) {
  RankOptions options;
  options.devices = 4;
  expect_well(on_ranks(2, options, [](GpuRank& gpu) -> std::string {
    Asker ask(gpu);
    MutableBuffer elsewhere = ask.on_gpu();
    elsewhere.device.index = 3;
    MutableBuffer nowhere = ask.on_gpu();
    nowhere.device.index = 9;
    return first_of(
        {ask.refuses({Call::all_reduce(ask.on_cpu(), ask.on_cpu(), ReduceOp::kSum)},
                     StatusCode::kInvalidArgument, "the tensor is on the CPU"),
         ask.refuses({Call::all_reduce(ask.on_cpu(), ask.on_gpu(), ReduceOp::kSum)},
                     StatusCode::kInvalidArgument, "the CPU and on cuda:"),
         ask.refuses({Call::broadcast(elsewhere, 0)}, StatusCode::kInvalidArgument, "on cuda:3"),
         ask.refuses({Call::broadcast(nowhere, 0)}, StatusCode::kInvalidArgument, "on cuda:9"),
         ask.works()});
  }));
}

TEST(Refusals, OfWhatNcclLacks) {
  expect_well(on_ranks(2, {}, [](GpuRank& gpu) -> std::string {
    Asker ask(gpu);
    const auto reduce = [&](DataType dtype, ReduceOp op) {
      return std::vector<Call>{Call::all_reduce(ask.on_gpu(4, dtype), ask.on_gpu(4, dtype), op)};
    };
    std::vector<Call> ring = {Call::all_reduce(ask.on_gpu(), ask.on_gpu(), ReduceOp::kSum)};
    ring[0].algorithm = "ring";
    const int self = gpu.options().rank;
    constexpr auto kUnsupported = StatusCode::kUnsupported;
    return first_of(
        {ask.refuses(reduce(DataType::kInt32, ReduceOp::kBXor), kUnsupported, "NCCL has no bxor"),
         ask.refuses(reduce(DataType::kInt16, ReduceOp::kSum), kUnsupported, "reduce int16"),
         ask.refuses(reduce(DataType::kComplex64, ReduceOp::kProduct), kUnsupported, "complex64"),
         ask.refuses(reduce(DataType::kBool, ReduceOp::kBXor), kUnsupported, "NCCL has no bxor"),
         ask.refuses(ring, kUnsupported, "algorithm \"ring\""),
         ask.refuses({Call::recv(ask.on_gpu(), kAnySource)}, kUnsupported, "not from any"),
         ask.refuses({Call::send(ask.on_gpu(), self)}, kUnsupported, "message to itself"),
         ask.refuses({Call::send(ask.on_gpu(), self), Call::recv(ask.on_gpu(2), self)},
                     StatusCode::kInvalidArgument, "sends itself 4 of float32"),
         ask.refuses({Call::broadcast(ask.on_gpu(), 0), Call::barrier()}, kUnsupported, "barrier"),
         ask.works()});
  }));
}

TEST(Refusals, OfFloat8ByAnOlderNccl) {
  ::setenv("FAKE_NCCL_VERSION", "22304", 1);
  expect_well(on_ranks(2, {}, [](GpuRank& gpu) -> std::string {
    Asker ask(gpu);
    const MutableBuffer small = ask.on_gpu(4, DataType::kFloat8E5M2);
    return first_of({ask.refuses({Call::all_reduce(small, small, ReduceOp::kSum)},
                                 StatusCode::kUnsupported, "NCCL 2.23.4 does not reduce float8"),
                     ask.works()});
  }));
  ::unsetenv("FAKE_NCCL_VERSION");
}

TEST(Refusals, OfFloat8OnAnOlderGpu) {
  ::setenv("FAKE_CUDA_CAPABILITY", "86", 1);
  expect_well(on_ranks(2, {}, [](GpuRank& gpu) -> std::string {
    Asker ask(gpu);
    const MutableBuffer small = ask.on_gpu(4, DataType::kFloat8E5M2);
    Result<Work> moved = gpu.communicator().broadcast(small, 0, gpu.on_stream());
    const Status was_moved = moved.ok() ? moved->wait() : moved.status();
    return first_of({ask.refuses({Call::all_reduce(small, small, ReduceOp::kSum)},
                                 StatusCode::kUnsupported, "9.0 and above, and one here has 8.6"),
                     was_moved.message(), ask.works()});
  }));
  ::unsetenv("FAKE_CUDA_CAPABILITY");
}

TEST(Refusals, OfAStreamThatIsCaptured) {
  expect_well(on_ranks(2, {}, [](GpuRank& gpu) -> std::string {
    Asker ask(gpu);
    (void)gpu.fake().set_capturing(gpu.stream().handle, 1);
    const std::string said = ask.refuses({Call::broadcast(ask.on_gpu(), 0)},
                                         StatusCode::kUnsupported, "captured into a CUDA graph");
    (void)gpu.fake().set_capturing(gpu.stream().handle, 0);
    return first_of({said, ask.works()});
  }));
}

// By way of the host, whatever else is on its way by NCCL.
TEST(Refusals, AutoReducesWhatNcclDoesNot) {
  ::setenv("FAKE_CUDA_CAPABILITY", "86", 1);
  RankOptions options;
  options.backend = "auto";
  expect_well(on_ranks(3, options, [](GpuRank& gpu) -> std::string {
    constexpr int64_t kCount = 50'000;
    constexpr int kRanks = 3;
    const auto all = static_cast<std::byte*>(gpu.allocate(4 * 2 * kCount));
    const auto part = [&](int number, DataType dtype) {
      return MutableBuffer{all + number * 2 * kCount, kCount, dtype, gpu.device()};
    };
    const MutableBuffer bits = part(0, DataType::kInt16);
    const MutableBuffer tiny = part(1, DataType::kFloat8E4M3FN);
    const MutableBuffer floats = part(2, DataType::kFloat32);
    const auto full = [](DataType dtype, double value) {
      return encode(dtype, std::vector<double>(kCount, value));
    };
    Communicator& group = gpu.communicator();
    const int rank = gpu.options().rank;
    gpu.write(bits.data, full(DataType::kInt16, double(1 << rank)), 2000);
    gpu.write(tiny.data, full(tiny.dtype, 1.5), 2000);
    gpu.write(floats.data, full(kFloat, 0.25), 2000);
    std::vector<Work> works;
    for (const auto& [buffer, op] : {std::pair(floats, ReduceOp::kSum),
                                     {bits, ReduceOp::kBOr},
                                     {floats, ReduceOp::kSum},
                                     {tiny, ReduceOp::kSum}}) {
      Result<Work> work = group.all_reduce(buffer, buffer, op, gpu.on_stream());
      if (!work.ok()) return work.status().message();
      works.push_back(*work);
    }
    for (Work& work : works) {
      if (const Status status = work.wait(); !status.ok()) return status.message();
    }
    const std::vector<Call> mixed = {Call::all_reduce(floats, floats, ReduceOp::kSum),
                                     Call::all_reduce(bits, bits, ReduceOp::kBOr)};
    Asker ask(gpu);
    MutableBuffer elsewhere = bits;
    elsewhere.device.index = (rank + 1) % kRanks;
    const std::string said = first_of(
        {ask.refuses(mixed, StatusCode::kUnsupported, "call it by itself, by which it goes"),
         ask.refuses({Call::all_reduce(elsewhere, elsewhere, ReduceOp::kBOr)},
                     StatusCode::kInvalidArgument, "this group's tensors are on cuda:")});
    if (!said.empty()) return said;
    const auto holds = [&](const MutableBuffer& buffer, double value) {
      return gpu.read(buffer.data, buffer.bytes()) == full(buffer.dtype, value);
    };
    if (!holds(floats, 0.25 * kRanks * kRanks)) return "the floats are wrong";
    if (!holds(bits, 7)) return "the bits are wrong";
    return holds(tiny, 4.5) ? ask.works() : "the small floats are wrong";
  }));
  ::unsetenv("FAKE_CUDA_CAPABILITY");
}

TEST(Refusals, AutoTakesTheCpuToo) {
  RankOptions options;
  options.backend = "auto";
  expect_well(on_ranks(2, options, [](GpuRank& gpu) -> std::string {
    Asker ask(gpu);
    Result<Work> work = gpu.communicator().all_reduce(ask.on_cpu(), ask.on_cpu(), ReduceOp::kSum);
    const Status status = work.ok() ? work->wait() : work.status();
    return first_of({status.message(), ask.works()});
  }));
}

}  // namespace
}  // namespace ciuic::nccl_test
