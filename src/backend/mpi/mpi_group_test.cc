// SPDX-License-Identifier: Apache-2.0
// mpi_group_test.cc: a group over an MPI that stands still, fails, or answers when it is told to.

#include "backend/mpi/mpi_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <set>

#include "engine/work_state.h"

namespace ciuic::backend {
namespace {

using testing::HasSubstr;

// What the functions below have been called for. Requests are numbered from 1.
struct FakeMpi {
  std::vector<std::string> calls;
  std::set<mpi::Handle> ended;
  mpi::Handle next = 0;
  int fails_with = mpi::kSuccess;
  int received_bytes = 0;
};

FakeMpi* fake = nullptr;

int start(const std::string& call, mpi::Handle* request) {
  if (fake->fails_with != mpi::kSuccess) return fake->fails_with;
  fake->calls.push_back(call);
  *request = ++fake->next;
  return mpi::kSuccess;
}

mpi::Library fake_library() {
  mpi::Library library;
  library.constants = *mpi::constants_from(mpi::abi_constants());
  mpi::Functions& all = library.functions;
  all.test = [](mpi::Handle* request, int* flag, void* status) {
    *flag = fake->ended.count(*request) > 0 ? 1 : 0;
    const int numbers[] = {3, 44};
    std::memcpy(status, numbers, sizeof numbers);
    return mpi::kSuccess;
  };
  all.get_count = [](const void*, mpi::Handle, int* count) {
    *count = fake->received_bytes;
    return mpi::kSuccess;
  };
  all.error_string = [](int code, char* text, int* length) {
    const std::string words = "words of error " + std::to_string(code);
    *length = static_cast<int>(words.copy(text, mpi::kMostTextBytes));
    return mpi::kSuccess;
  };
  all.ibarrier = [](mpi::Handle, mpi::Handle* request) { return start("barrier", request); };
  all.irecv = [](void*, int, mpi::Handle, int source, int, mpi::Handle, mpi::Handle* request) {
    return start("recv from " + std::to_string(source), request);
  };
  all.ireduce = [](const void*, void*, int count, mpi::Handle, mpi::Handle, int root, mpi::Handle,
                   mpi::Handle* request) {
    return start("reduce " + std::to_string(count) + " to " + std::to_string(root), request);
  };
  return library;
}

class MpiGroupTest : public testing::Test {
 protected:
  MpiGroupTest() { fake = &mpi_; }

  MpiGroup group(bool has_control_plane) {
    MpiGroup::Options options;
    options.communicator = {.library = &library_,
                            .types = &types_,
                            .handle = 7,
                            .rank = 1,
                            .size = 4,
                            .buffer_size = 64};
    if (has_control_plane) {
      options.on_cause = [this](const engine::Cause& cause) { causes_.push_back(cause); };
    }
    return MpiGroup(std::move(options));
  }

  // Gives its Work, which keeps one reference.
  Work call(MpiGroup& group, const Call& call, int64_t count = 0, TimeNs deadline = kNever) {
    auto operation = group.spare();
    operation->call = call;
    operation->request.operation = name_of(call.operation);
    operation->request.count = count;
    operation->request.dtype = DataType::kFloat32;
    operation->request.op = call.op;
    operation->request.reduces = call.operation == Operation::kReduce;
    operation->request.deadline = deadline;
    auto* work = new engine::WorkState();
    work->retain();
    operation->work = work;
    group.start(std::move(operation));
    return Work(work);
  }

  FakeMpi mpi_;
  mpi::Library library_ = fake_library();
  MpiTypes types_{&library_};
  std::vector<engine::Cause> causes_;
};

TEST_F(MpiGroupTest, NumbersOperationsAndEndsThemAsMpiDoes) {
  MpiGroup group = this->group(true);
  const Work first = call(group, Call::barrier());
  const Work second = call(group, Call::barrier());
  EXPECT_EQ(mpi_.calls.size(), 2u);
  EXPECT_EQ(group.progress().next, 2u);
  EXPECT_EQ(group.progress().lowest, 0u);
  EXPECT_TRUE(group.needs(1));
  mpi_.ended = {2};
  EXPECT_TRUE(group.step(0));
  EXPECT_EQ(group.progress().lowest, 0u);
  mpi_.ended = {1, 2};
  EXPECT_TRUE(group.step(0));
  EXPECT_FALSE(group.is_busy());
  EXPECT_EQ(group.progress().lowest, 2u);
  EXPECT_STREQ(group.call_record(1).operation, "barrier");
  EXPECT_EQ(group.call_record(2).operation, nullptr);
}

TEST_F(MpiGroupTest, StagesPieceByPieceAndLetsNothingInBetween) {
  MpiGroup group = this->group(true);
  const std::vector<float> input(40, 8.0f);  // staging holds 16 of them
  const ConstBuffer buffer{input.data(), 40, DataType::kFloat32, {}};
  const Work average = call(group, Call::reduce(buffer, {}, ReduceOp::kAvg, 0), 40);
  const Work barrier = call(group, Call::barrier());
  EXPECT_THAT(mpi_.calls, testing::ElementsAre("reduce 16 to 0"));
  EXPECT_EQ(group.staging_bytes(), 64u);
  for (mpi::Handle request = 1; request <= 3; ++request) {
    mpi_.ended.insert(request);
    group.step(0);
  }
  EXPECT_THAT(mpi_.calls,
              testing::ElementsAre("reduce 16 to 0", "reduce 16 to 0", "reduce 8 to 0", "barrier"));
  mpi_.ended.insert(4);
  group.step(0);
  EXPECT_FALSE(group.is_busy());
}

TEST_F(MpiGroupTest, AnErrorOfMpiIsACauseWithItsWords) {
  MpiGroup group = this->group(true);
  mpi_.fails_with = 15;
  const Work work = call(group, Call::barrier());
  ASSERT_EQ(causes_.size(), 1u);
  EXPECT_THAT(causes_[0].status.message(), HasSubstr("barrier on rank 1 failed in MPI"));
  EXPECT_THAT(causes_[0].status.message(), HasSubstr("words of error 15"));
  group.end({StatusCode::kSystem, "decided"});
  EXPECT_EQ(work.status().message(), "decided");
  EXPECT_FALSE(group.has_abandoned());
}

TEST_F(MpiGroupTest, WhatIsLateIsReportedAndAbandonedOnceThatIsDecided) {
  MpiGroup group = this->group(true);
  const Work work = call(group, Call::barrier(), 0, 100);
  group.step(99);
  EXPECT_TRUE(causes_.empty());
  group.step(100);
  group.step(101);
  ASSERT_EQ(causes_.size(), 1u);
  EXPECT_TRUE(causes_[0].is_late);
  EXPECT_EQ(causes_[0].status.code(), StatusCode::kTimeout);
  EXPECT_TRUE(group.is_busy());
  group.end({StatusCode::kTimeout, "rank 2 is late."});
  EXPECT_THAT(work.status().message(), HasSubstr("rank 2 is late. What is under way in MPI"));
  EXPECT_TRUE(group.has_abandoned());
  const Work later = call(group, Call::barrier());
  EXPECT_EQ(later.status().message(), "rank 2 is late.");
}

TEST_F(MpiGroupTest, WhatCannotBeTakenBackIsASentenceOfItsOwn) {
  MpiGroup group = this->group(true);
  const Work work = call(group, Call::barrier());
  group.end({StatusCode::kAborted, "rank 0 called abort(): enough"});
  EXPECT_THAT(work.status().message(), HasSubstr("abort(): enough. What is under way in MPI"));
}

TEST_F(MpiGroupTest, WithoutAControlPlaneACauseEndsTheGroup) {
  MpiGroup group = this->group(false);
  const Work work = call(group, Call::barrier(), 0, 100);
  group.step(100);
  EXPECT_EQ(work.status().code(), StatusCode::kTimeout);
  EXPECT_FALSE(group.is_busy());
}

TEST_F(MpiGroupTest, ADeathEndsWhatIsUnderWayAndALeaverDoesNot) {
  MpiGroup group = this->group(true);
  const Work work = call(group, Call::barrier());
  group.mark_gone(2, {StatusCode::kPeerLost, "rank 2 closed its communicator"}, true);
  EXPECT_TRUE(causes_.empty());
  group.mark_gone(3, {StatusCode::kPeerLost, "rank 3 is gone"}, false);
  ASSERT_EQ(causes_.size(), 1u);
  EXPECT_EQ(causes_[0].about, 3);
  EXPECT_THAT(causes_[0].status.message(),
              HasSubstr("rank 3 is gone, while rank 1 was in barrier"));
  group.end({StatusCode::kPeerLost, "decided"});
}

TEST_F(MpiGroupTest, AReceiveTellsItsSourceAndRefusesAnotherSize) {
  MpiGroup group = this->group(true);
  float value = 0;
  const Call receive = Call::recv({&value, 1, DataType::kFloat32, {}}, kAnySource, kAnyTag);
  mpi_.ended = {1, 2};
  mpi_.received_bytes = 4;
  const Work well = call(group, receive, 1);
  group.step(0);
  EXPECT_EQ(well.source(), 3);
  EXPECT_EQ(well.tag(), 44);
  EXPECT_THAT(mpi_.calls, testing::ElementsAre("recv from -1"));
  mpi_.received_bytes = 2;
  const Work shorter = call(group, receive, 1);
  group.step(0);
  ASSERT_EQ(causes_.size(), 1u);
  EXPECT_EQ(causes_[0].status.code(), StatusCode::kMismatch);
  EXPECT_THAT(causes_[0].status.message(), HasSubstr("expects 4 bytes"));
  EXPECT_THAT(causes_[0].status.message(), HasSubstr("rank 3 sent 2"));
  group.end(causes_[0].status);
}

TEST(MpiTypesTest, WhatGoesStraightToAnMpiThatKnowsCuda) {
  mpi::Library library = fake_library();
  const ConstBuffer floats{nullptr, 4, DataType::kFloat32, {}};
  const ConstBuffer halves{nullptr, 4, DataType::kFloat16, {}};
  const auto all_reduce = [](const ConstBuffer& x, ReduceOp op) {
    return Call::all_reduce(x, {nullptr, x.count, x.dtype, {}}, op);
  };
  EXPECT_FALSE(goes_straight(library, all_reduce(floats, ReduceOp::kSum)));
  library.is_cuda_aware = true;
  EXPECT_TRUE(goes_straight(library, all_reduce(floats, ReduceOp::kSum)));
  EXPECT_TRUE(goes_straight(library, Call::send(halves, 1)));
  // What our functions would do, on the CPU.
  EXPECT_FALSE(goes_straight(library, all_reduce(floats, ReduceOp::kAvg)));
  EXPECT_FALSE(goes_straight(library, all_reduce(floats, ReduceOp::kMax)));
  EXPECT_FALSE(goes_straight(library, all_reduce(halves, ReduceOp::kSum)));
}

}  // namespace
}  // namespace ciuic::backend
