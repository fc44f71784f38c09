// SPDX-License-Identifier: Apache-2.0
// collective_test.cc: what each operation refuses, and what it hands to the engine.

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "collective/operations.h"

namespace ciuic::collective {
namespace {

Chooser chooser(int size, int rank) {
  return Chooser(plan::Layout::one_host(size), rank, tuner::TuningTable());
}

class Operations : public testing::Test {
 protected:
  ConstBuffer in(int64_t count, DataType dtype = DataType::kFloat32) {
    return {memory_.data(), count, dtype, {}};
  }
  MutableBuffer out(int64_t count, DataType dtype = DataType::kFloat32) {
    return {memory_.data() + memory_.size() / 2, count, dtype, {}};
  }
  StatusCode code(const Arguments& arguments, int size = 2, int rank = 0) {
    Chooser of_group = chooser(size, rank);
    return prepare(of_group, arguments).status().code();
  }

  std::vector<std::byte> memory_ = std::vector<std::byte>(4096);
};

Arguments all_reduce_of(ConstBuffer input, MutableBuffer output, ReduceOp op = ReduceOp::kSum) {
  return {plan::Operation::kAllReduce, input, output, op, 0, {}};
}

TEST_F(Operations, TakeWhatIsRight) {
  EXPECT_EQ(code(all_reduce_of(in(8), out(8))), StatusCode::kOk);
  MutableBuffer same = out(8);
  EXPECT_EQ(code(all_reduce_of(same, same)), StatusCode::kOk);
  EXPECT_EQ(
      code(all_reduce_of({nullptr, 0, DataType::kInt64, {}}, {nullptr, 0, DataType::kInt64, {}})),
      StatusCode::kOk);
}

TEST_F(Operations, RefuseBuffersThatCannotBe) {
  EXPECT_EQ(code(all_reduce_of(in(8), out(7))), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(all_reduce_of(in(-1), out(-1))), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(all_reduce_of(in(8), out(8, DataType::kInt32))), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(all_reduce_of({nullptr, 3, DataType::kFloat32, {}}, out(3))),
            StatusCode::kInvalidArgument);
  ConstBuffer on_gpu = in(8);
  on_gpu.device.kind = DeviceKind::kCuda;
  EXPECT_EQ(code(all_reduce_of(on_gpu, out(8))), StatusCode::kUnsupported);
}

TEST_F(Operations, RefuseMemoryThatOverlapsInPart) {
  ConstBuffer input = in(8);
  MutableBuffer output{memory_.data() + 4, 8, DataType::kFloat32, {}};
  EXPECT_EQ(code(all_reduce_of(input, output)), StatusCode::kInvalidArgument);
  // All-gather in place is this rank's own part, and nothing else.
  MutableBuffer all{memory_.data(), 16, DataType::kFloat32, {}};
  ConstBuffer first{memory_.data(), 8, DataType::kFloat32, {}};
  ConstBuffer second{memory_.data() + 32, 8, DataType::kFloat32, {}};
  const auto gather = [&](ConstBuffer part) {
    return Arguments{plan::Operation::kAllGather, part, all, ReduceOp::kSum, 0, {}};
  };
  EXPECT_EQ(code(gather(first), 2, 0), StatusCode::kOk);
  EXPECT_EQ(code(gather(second), 2, 1), StatusCode::kOk);
  EXPECT_EQ(code(gather(first), 2, 1), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(gather(second), 2, 0), StatusCode::kInvalidArgument);
}

TEST_F(Operations, RefuseRootsOutsideTheGroup) {
  for (int root : {-1, 2}) {
    EXPECT_EQ(code({plan::Operation::kBroadcast, {}, out(8), ReduceOp::kSum, root, {}}),
              StatusCode::kInvalidArgument);
    EXPECT_EQ(code({plan::Operation::kReduce, in(8), out(8), ReduceOp::kSum, root, {}}),
              StatusCode::kInvalidArgument);
  }
}

TEST_F(Operations, NeedNoOutputWhereThereIsNoResult) {
  const Arguments arguments{plan::Operation::kReduce, in(8), {}, ReduceOp::kSum, 1, {}};
  EXPECT_EQ(code(arguments, 2, 0), StatusCode::kOk);
  EXPECT_EQ(code(arguments, 2, 1), StatusCode::kInvalidArgument);
}

TEST(Fingerprint, DiffersWhereCallsDiffer) {
  Chooser of_group = chooser(2, 0);
  Chooser of_peer = chooser(2, 1);
  const tuner::Call call{plan::Operation::kAllReduce, DataType::kFloat32, ReduceOp::kSum, 8, 0};
  const uint32_t fingerprint = of_group.choose(call).fingerprint;
  EXPECT_EQ(fingerprint, of_peer.choose(call).fingerprint) << "alike on all ranks";
  std::array<tuner::Call, 5> others{call, call, call, call, call};
  others[0].operation = plan::Operation::kReduce;
  others[1].dtype = DataType::kInt32;
  others[2].op = ReduceOp::kMax;
  others[3].count = 9;
  others[4].root = 1;
  for (const tuner::Call& other : others) {
    EXPECT_NE(of_group.choose(other).fingerprint, fingerprint);
  }
}

}  // namespace
}  // namespace ciuic::collective
