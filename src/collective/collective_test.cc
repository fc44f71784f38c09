// SPDX-License-Identifier: Apache-2.0
// collective_test.cc: what each operation refuses, and what it hands to the engine.

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "collective/prepare.h"
#include "collective/repeats.h"

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
  StatusCode code(const Call& call, int size = 2, int rank = 0) {
    Chooser of_group = chooser(size, rank);
    return prepare(of_group, call).status().code();
  }

  std::vector<std::byte> memory_ = std::vector<std::byte>(4096);
};

Call all_reduce_of(ConstBuffer input, MutableBuffer output, ReduceOp op = ReduceOp::kSum) {
  return Call::all_reduce(input, output, op);
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
  // Whose bytes no number of 64 bits holds: they would be few.
  for (const int64_t count : {INT64_MAX / 4 + 1, int64_t{1} << 62, INT64_MAX}) {
    EXPECT_EQ(code(all_reduce_of(in(count), out(count))), StatusCode::kInvalidArgument);
    EXPECT_EQ(code(Call::send(in(count), 1, 0)), StatusCode::kInvalidArgument);
    EXPECT_EQ(code(Call::recv(out(count), 1)), StatusCode::kInvalidArgument);
    EXPECT_EQ(code(Call::broadcast(out(count), 0)), StatusCode::kInvalidArgument);
  }
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
  const auto gather = [&](ConstBuffer part) { return Call::all_gather(part, all); };
  EXPECT_EQ(code(gather(first), 2, 0), StatusCode::kOk);
  EXPECT_EQ(code(gather(second), 2, 1), StatusCode::kOk);
  EXPECT_EQ(code(gather(first), 2, 1), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(gather(second), 2, 0), StatusCode::kInvalidArgument);
}

TEST_F(Operations, RefuseRootsOutsideTheGroup) {
  for (int root : {-1, 2}) {
    EXPECT_EQ(code(Call::broadcast(out(8), root)), StatusCode::kInvalidArgument);
    EXPECT_EQ(code(Call::reduce(in(8), out(8), ReduceOp::kSum, root)),
              StatusCode::kInvalidArgument);
    EXPECT_EQ(code(Call::gather(in(8), out(16), root)), StatusCode::kInvalidArgument);
    EXPECT_EQ(code(Call::scatter(in(16), out(8), root)), StatusCode::kInvalidArgument);
  }
}

TEST_F(Operations, NeedNoOutputWhereThereIsNoResult) {
  const Call reduce = Call::reduce(in(8), {}, ReduceOp::kSum, 1);
  EXPECT_EQ(code(reduce, 2, 0), StatusCode::kOk);
  EXPECT_EQ(code(reduce, 2, 1), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(Call::gather(in(8), {}, 1), 2, 0), StatusCode::kOk);
  EXPECT_EQ(code(Call::gather(in(8), {}, 1), 2, 1), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(Call::scatter({}, out(8), 1), 2, 0), StatusCode::kOk);
  EXPECT_EQ(code(Call::scatter({}, out(8), 1), 2, 1), StatusCode::kInvalidArgument);
}

// What shares memory otherwise than in place, or where nothing may, is refused.
TEST_F(Operations, KnowTheirPlaceInMemory) {
  MutableBuffer all{memory_.data(), 24, DataType::kFloat32, {}};
  const auto part = [&](int block) {
    return MutableBuffer{memory_.data() + block * 32, 8, DataType::kFloat32, {}};
  };
  for (int rank = 0; rank < 3; ++rank) {
    for (int block = 0; block < 3; ++block) {
      const StatusCode expected = rank == block ? StatusCode::kOk : StatusCode::kInvalidArgument;
      const Call calls[] = {
          Call::all_gather(part(block), all),
          Call::reduce_scatter(all, part(block), ReduceOp::kSum),
          Call::gather(part(block), all, rank),
          Call::scatter(all, part(block), rank),
          Call::all_gather_v(part(block), all, {8, 8, 8}),
          Call::reduce_scatter_v(all, {8, 8, 8}, part(block), ReduceOp::kSum),
          Call::gather_v(part(block), all, {8, 8, 8}, rank),
          Call::scatter_v(all, {8, 8, 8}, part(block), rank),
      };
      for (const Call& call : calls) EXPECT_EQ(code(call, 3, rank), expected) << name_of(call);
    }
  }
  EXPECT_EQ(code(Call::all_to_all(all, all), 3), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(Call::all_to_all_v(all, {8, 8, 8}, all, {8, 8, 8}), 3),
            StatusCode::kInvalidArgument);
  // Parts of different size: in place is where this rank's part is.
  MutableBuffer third{memory_.data() + 5 * 4, 19, DataType::kFloat32, {}};
  EXPECT_EQ(code(Call::all_gather_v(third, all, {5, 0, 19}), 3, 2), StatusCode::kOk);
  EXPECT_EQ(code(Call::all_gather_v(third, all, {4, 1, 19}), 3, 2), StatusCode::kOk);
  EXPECT_EQ(code(Call::all_gather_v(third, all, {4, 19, 1}), 3, 1), StatusCode::kInvalidArgument);
}

TEST_F(Operations, RefuseSizesThatDoNotFit) {
  const Call calls[] = {
      Call::all_gather(in(8), out(23)),
      Call::reduce_scatter(in(23), out(8), ReduceOp::kSum),
      Call::all_to_all(in(23), out(23)),
      Call::all_to_all(in(24), out(21)),
      Call::gather(in(8), out(23), 0),
      Call::scatter(in(23), out(8), 0),
      Call::all_gather_v(in(8), out(24), {8, 8}),
      Call::all_gather_v(in(8), out(24), {8, 8, 7}),
      Call::all_gather_v(in(8), out(24), {9, 8, 7}),
      Call::all_gather_v(in(8), out(24), {8, 17, -1}),
      Call::reduce_scatter_v(in(24), {7, 8, 9}, out(8), ReduceOp::kSum),
      Call::all_to_all_v(in(24), {8, 8, 9}, out(24), {8, 8, 8}),
      Call::all_to_all_v(in(24), {8, 8, 8}, out(24), {}),
      Call::gather_v(in(8), out(24), {7, 8, 9}, 0),
      Call::scatter_v(in(24), {7, 8, 9}, out(8), 0),
  };
  for (const Call& call : calls) {
    EXPECT_EQ(code(call, 3, 0), StatusCode::kInvalidArgument) << name_of(call);
  }
  Call uneven = all_reduce_of(in(8), out(8));
  uneven.uneven = true;
  EXPECT_EQ(code(uneven, 3, 0), StatusCode::kUnsupported);
}

TEST_F(Operations, TakeUnevenPartsAlsoEmptyOnes) {
  EXPECT_EQ(code(Call::all_gather_v(in(0), out(24), {0, 24, 0}), 3, 0), StatusCode::kOk);
  EXPECT_EQ(code(Call::reduce_scatter_v(in(0), {0, 0, 0}, out(0), ReduceOp::kSum), 3, 2),
            StatusCode::kOk);
  EXPECT_EQ(code(Call::all_to_all_v(in(5), {0, 5, 0}, out(9), {0, 0, 9}), 3, 1), StatusCode::kOk);
  EXPECT_EQ(code(Call::gather_v(in(5), {}, {}, 0), 3, 1), StatusCode::kOk);
  EXPECT_EQ(code(Call::scatter_v({}, {}, out(0), 2), 3, 1), StatusCode::kOk);
}

TEST_F(Operations, SendAndReceiveKnowTheirRanksAndTags) {
  EXPECT_EQ(code(Call::send(in(8), 1, 0)), StatusCode::kOk);
  EXPECT_EQ(code(Call::send(in(8), 0, kMaxTag)), StatusCode::kOk) << "to itself";
  EXPECT_EQ(code(Call::send(in(8), 2, 0)), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(Call::send(in(8), -1, 0)), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(Call::send(in(8), 1, -1)), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(Call::recv(out(8), kAnySource, kAnyTag)), StatusCode::kOk);
  EXPECT_EQ(code(Call::recv(out(8), 2)), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(Call::recv(out(8), 1, -2)), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(Call::recv({nullptr, 8, DataType::kFloat32, {}}, 1)),
            StatusCode::kInvalidArgument);
}

// Where all ranks know all counts, other counts are another call.
TEST_F(Operations, ShareTheirCountsInTheFingerprintWhereAllKnowThem) {
  const auto print = [&](const Call& call, int rank) {
    Chooser of_group = chooser(2, rank);
    return prepare(of_group, call)->fingerprint;
  };
  EXPECT_EQ(print(Call::all_gather_v(in(3), out(8), {3, 5}), 0),
            print(Call::all_gather_v(in(5), out(8), {3, 5}), 1));
  EXPECT_NE(print(Call::all_gather_v(in(3), out(8), {3, 5}), 0),
            print(Call::all_gather_v(in(4), out(8), {4, 4}), 1));
  EXPECT_NE(print(Call::all_gather_v(in(4), out(8), {4, 4}), 0),
            print(Call::all_gather(in(4), out(8)), 1));
  EXPECT_EQ(print(Call::all_to_all_v(in(3), {3, 0}, out(8), {3, 5}), 0),
            print(Call::all_to_all_v(in(5), {5, 0}, out(0), {0, 0}), 1));
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

TEST_F(Operations, ThatRepeatAreKnownAgain) {
  Chooser of_group = chooser(2, 0);
  Repeats repeats;
  const Call call = all_reduce_of(in(8), out(8));
  EXPECT_EQ(repeats.find(call), nullptr);
  repeats.remember(call, *prepare(of_group, call));
  Call moved = call;
  moved.input.data = memory_.data() + 64;
  const engine::Request* again = repeats.find(moved);
  ASSERT_NE(again, nullptr);
  EXPECT_EQ(again->input, memory_.data() + 64);
  EXPECT_EQ(again->output, memory_.data() + memory_.size() / 2);
  const engine::Request anew = *prepare(of_group, moved);
  EXPECT_EQ(again->fingerprint, anew.fingerprint);
  EXPECT_EQ(again->plan, anew.plan);
  EXPECT_EQ(again->count, 8);

  const MutableBuffer same = out(8);
  Call overlaps = call;
  overlaps.input.data = memory_.data() + memory_.size() / 2 + 4;
  Call of_null = call;
  of_null.input.data = nullptr;
  Call named = call;
  named.algorithm = "ring";
  Call on_gpu = call;
  on_gpu.output.device.kind = DeviceKind::kCuda;
  for (const Call& other :
       {all_reduce_of(in(7), out(7)), all_reduce_of(in(8), out(7)), all_reduce_of(same, same),
        all_reduce_of(in(8), out(8), ReduceOp::kMax),
        Call::reduce(in(8), out(8), ReduceOp::kSum, 0),
        all_reduce_of(in(8, DataType::kInt32), out(8, DataType::kInt32)), overlaps, of_null, named,
        on_gpu, Call::barrier(), Call::send(in(8), 1)}) {
    EXPECT_EQ(repeats.find(other), nullptr);
  }
  const Call in_place = all_reduce_of(same, same);
  repeats.remember(in_place, *prepare(of_group, in_place));
  EXPECT_NE(repeats.find(in_place), nullptr);
  EXPECT_EQ(repeats.find(call), nullptr);
  repeats.remember(Call::barrier(), *prepare(of_group, Call::barrier()));
  EXPECT_EQ(repeats.find(in_place), nullptr);
}

TEST_F(Operations, ThatAreUnevenOrNamedAreNotRemembered) {
  Chooser of_group = chooser(2, 0);
  Repeats repeats;
  const Call uneven = Call::all_gather_v(in(3), out(5), {3, 2});
  Call named = all_reduce_of(in(8), out(8));
  named.algorithm = "ring";
  for (const Call& call : {uneven, named}) {
    repeats.remember(call, *prepare(of_group, call));
    EXPECT_EQ(repeats.find(call), nullptr);
  }
}

}  // namespace
}  // namespace ciuic::collective
