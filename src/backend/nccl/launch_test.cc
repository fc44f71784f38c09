// SPDX-License-Identifier: Apache-2.0
// launch_test.cc: which calls of NCCL's an operation becomes.

#include "backend/nccl/launch.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace ciuic::backend {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// The calls, with addresses as offsets in the memory below.
std::vector<std::string>* calls = nullptr;
std::byte memory[4096];
int fails_at = -1;  // which call does

std::string at(const void* pointer) {
  if (pointer == nullptr) return "-";
  return std::to_string(static_cast<const std::byte*>(pointer) - memory);
}

int note(std::string call) {
  calls->push_back(std::move(call));
  return static_cast<int>(calls->size()) - 1 == fails_at ? nccl::kInvalidUsage : nccl::kSuccess;
}

cuda::Functions fake_cuda() {
  cuda::Functions all;
  all.get_device = [](int* device) { return *device = 0, cuda::kSuccess; };
  all.set_device = [](int) { return cuda::kSuccess; };
  all.stream_create_with_flags = [](cuda::Stream*, unsigned) { return cuda::kSuccess; };
  all.memcpy_async = [](void* to, const void* from, size_t bytes, int, cuda::Stream) {
    note(fmt::format("copy {} to {} of {}", at(from), at(to), bytes));
    return cuda::kSuccess;
  };
  return all;
}

nccl::Library fake_nccl() {
  nccl::Library library;
  library.version = 22705;
  nccl::Functions& all = library.functions;
  all.get_error_string = [](int) { return "invalid usage"; };
  all.get_last_error = [](nccl::Comm) { return ""; };
  all.group_start = [] { return note("("); };
  all.group_end = [] { return note(")"); };
  all.all_reduce = [](const void* from, void* to, size_t count, int type, int op, nccl::Comm,
                      nccl::Stream) {
    return note(
        fmt::format("all_reduce {} to {} of {} type {} op {}", at(from), at(to), count, type, op));
  };
  all.reduce = [](const void* from, void* to, size_t count, int type, int op, int root, nccl::Comm,
                  nccl::Stream) {
    return note(fmt::format("reduce {} to {} of {} type {} op {} root {}", at(from), at(to), count,
                            type, op, root));
  };
  all.broadcast = [](const void* from, void* to, size_t count, int type, int root, nccl::Comm,
                     nccl::Stream) {
    return note(fmt::format("broadcast {} to {} of {} type {} root {}", at(from), at(to), count,
                            type, root));
  };
  all.send = [](const void* from, size_t count, int, int peer, nccl::Comm, nccl::Stream) {
    return note(fmt::format("send {} of {} to rank {}", at(from), count, peer));
  };
  all.recv = [](void* to, size_t count, int, int peer, nccl::Comm, nccl::Stream) {
    return note(fmt::format("recv {} of {} from rank {}", at(to), count, peer));
  };
  all.red_op_create_pre_mul_sum = [](int* op, void* scalar, int type, int, nccl::Comm) {
    *op = 100 + type;
    return note(fmt::format("op {} of {}", *op, *static_cast<float*>(scalar)));
  };
  return library;
}

class LaunchTest : public testing::Test {
 protected:
  LaunchTest() {
    calls = &calls_;
    fails_at = -1;
    comm_ = std::move(*NcclComm::create({.cuda = &cuda_, .nccl = &nccl_, .rank = 1, .size = 4}));
  }

  static ConstBuffer in(int64_t count, DataType dtype = DataType::kFloat32) {
    return {memory, count, dtype, {DeviceKind::kCuda, 0}};
  }
  static MutableBuffer out(int64_t count, DataType dtype = DataType::kFloat32, int64_t at = 2048) {
    return {memory + at, count, dtype, {DeviceKind::kCuda, 0}};
  }

  std::vector<std::string> launched(const std::vector<Call>& all) {
    calls_.clear();
    EXPECT_EQ(check_calls(place_, all).message(), "");
    status_ = launch(place_, all, comm_.get());
    return calls_;
  }

  std::vector<std::string> calls_;
  cuda::Functions cuda_ = fake_cuda();
  nccl::Library nccl_ = fake_nccl();
  NcclPlace place_{.rank = 1, .size = 4, .version = 22705, .capability = 90};
  std::unique_ptr<NcclComm> comm_;
  Status status_;
};

TEST_F(LaunchTest, WhatIsSubmittedTogetherIsOneGroup) {
  EXPECT_THAT(launched({Call::all_reduce(in(3), out(3), ReduceOp::kMax), Call::send(in(2), 2),
                        Call::recv(out(1), 0)}),
              ElementsAre("(", "all_reduce 0 to 2048 of 3 type 7 op 2", "send 0 of 8 to rank 2",
                          "recv 2048 of 4 from rank 0", ")"));
}

TEST_F(LaunchTest, AveragesOfFloatsAreSumsTimesAPartOfOne) {
  EXPECT_THAT(launched({Call::all_reduce(in(3), out(3), ReduceOp::kAvg)}),
              ElementsAre("op 107 of 0.25", "(", "all_reduce 0 to 2048 of 3 type 7 op 107", ")"));
  EXPECT_THAT(launched({Call::all_reduce(in(3, DataType::kComplex64), out(3, DataType::kComplex64),
                                         ReduceOp::kAvg)}),
              ElementsAre("(", "all_reduce 0 to 2048 of 6 type 7 op 107", ")"));
  EXPECT_THAT(launched({Call::all_reduce(in(3, DataType::kInt32), out(3, DataType::kInt32),
                                         ReduceOp::kAvg)}),
              ElementsAre("(", "all_reduce 0 to 2048 of 3 type 2 op 4", ")"));
}

TEST_F(LaunchTest, UnevenFormsAreACallForEachRankThatHasSomething) {
  EXPECT_THAT(launched({Call::all_gather_v(in(2), out(6), {3, 2, 0, 1})}),
              ElementsAre("(", "broadcast 2048 to 2048 of 12 type 1 root 0",
                          "broadcast 0 to 2060 of 8 type 1 root 1",
                          "broadcast 2068 to 2068 of 4 type 1 root 3", ")"));
  EXPECT_THAT(launched({Call::reduce_scatter_v(in(6), {3, 2, 0, 1}, out(2), ReduceOp::kSum)}),
              ElementsAre("(", "reduce 0 to - of 3 type 7 op 0 root 0",
                          "reduce 12 to 2048 of 2 type 7 op 0 root 1",
                          "reduce 20 to - of 1 type 7 op 0 root 3", ")"));
}

TEST_F(LaunchTest, OwnBlocksAreCopiedUnlessTheyAreInTheirPlace) {
  EXPECT_THAT(launched({Call::all_to_all_v(in(4), {1, 2, 0, 1}, out(5), {0, 2, 3, 0})}),
              ElementsAre("copy 4 to 2048 of 8", "(", "send 0 of 4 to rank 0",
                          "send 12 of 4 to rank 3", "recv 2056 of 12 from rank 2", ")"));
  EXPECT_THAT(launched({Call::scatter(in(8), out(2, DataType::kFloat32, 8), 1)}),
              ElementsAre("(", "send 0 of 8 to rank 0", "send 16 of 8 to rank 2",
                          "send 24 of 8 to rank 3", ")"));
}

// Both kinds of what a rank has for itself, in one group.
TEST_F(LaunchTest, OwnMessagesAreMatchedAmongThemselves) {
  EXPECT_THAT(launched({Call::send(in(2), 1), Call::gather(in(3), out(12), 1),
                        Call::recv(out(2, DataType::kFloat32, 3000), 1)}),
              testing::IsSupersetOf({"copy 0 to 2060 of 12", "copy 0 to 3000 of 8"}));
}

TEST_F(LaunchTest, NothingIsNotSent) {
  EXPECT_THAT(launched({Call::all_reduce(in(0), out(0), ReduceOp::kSum), Call::send(in(0), 2),
                        Call::all_gather(in(0), out(0)), Call::broadcast(out(0), 0)}),
              ElementsAre("(", ")"));
}

TEST_F(LaunchTest, AGroupIsEndedAlsoWhereACallFails) {
  fails_at = 1;
  EXPECT_THAT(launched({Call::send(in(2), 2), Call::recv(out(2), 0)}),
              ElementsAre("(", "send 0 of 8 to rank 2", ")"));
  EXPECT_THAT(status_.message(), HasSubstr("ncclSend failed: invalid usage (5)"));
}

TEST_F(LaunchTest, AnAbortedCommunicatorIsNotCalled) {
  comm_->abort();
  EXPECT_THAT(launched({Call::send(in(2), 2)}), IsEmpty());
  EXPECT_EQ(status_.code(), StatusCode::kAborted);
}

TEST_F(LaunchTest, OneRankOnlyCopies) {
  place_ = {.rank = 0, .size = 1, .version = 22705, .capability = 90};
  EXPECT_THAT(launched({Call::all_reduce(in(3, DataType::kUInt16), out(3, DataType::kUInt16),
                                         ReduceOp::kBXor),
                        Call::broadcast(out(4), 0), Call::all_to_all(in(2), out(2)),
                        Call::gather_v(in(2), out(2), {2}, 0)}),
              ElementsAre("copy 0 to 2048 of 8", "copy 0 to 2048 of 8", "copy 0 to 2048 of 6"));
}

TEST_F(LaunchTest, WhatARankExpectsOfItselfIsWhatItSends) {
  const std::vector<Call> call = {Call::all_to_all_v(in(4), {1, 2, 0, 1}, out(4), {0, 1, 3, 0})};
  const Status status = check_calls(place_, call);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("sends 2 elements to itself and expects 1"));
}

}  // namespace
}  // namespace ciuic::backend
