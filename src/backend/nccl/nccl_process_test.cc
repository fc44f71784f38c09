// SPDX-License-Identifier: Apache-2.0
// nccl_process_test.cc: a CUDA and an NCCL that stand still, fail, or do not come back from a call.

#include "backend/nccl/nccl_process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <deque>
#include <future>
#include <thread>

namespace ciuic::backend {
namespace {

using testing::HasSubstr;

// What the functions below answer.
struct Answers {
  std::atomic<int> event_code{cuda::kNotReady};
  std::atomic<int> comm_state{nccl::kSuccess};
  std::atomic<int> last_errors_taken{0};
  std::atomic<int> aborts{0};
  std::atomic<int> destroyed{0};
  std::promise<void> lets_abort_return;
  std::shared_future<void> abort_returns = lets_abort_return.get_future().share();
  std::atomic<bool> holds_abort{false};
  std::atomic<bool> holds_query{false};
};

Answers* answers = nullptr;
int a_stream = 0;

cuda::Library fake_cuda() {
  cuda::Library library;
  library.devices = 1;
  cuda::Functions& all = library.functions;
  all.get_device = [](int* device) { return *device = 0, cuda::kSuccess; };
  all.set_device = [](int) { return cuda::kSuccess; };
  all.get_error_string = [](int) { return "words of CUDA"; };
  all.get_last_error = [] { return ++answers->last_errors_taken, cuda::kSuccess; };
  all.stream_create_with_flags = [](cuda::Stream* stream, unsigned) {
    return *stream = &a_stream, cuda::kSuccess;
  };
  all.stream_destroy = [](cuda::Stream) { return cuda::kSuccess; };
  all.stream_wait_event = [](cuda::Stream, cuda::Event, unsigned) { return cuda::kSuccess; };
  all.event_create_with_flags = [](cuda::Event* event, unsigned) {
    return *event = &a_stream, cuda::kSuccess;
  };
  all.event_destroy = [](cuda::Event) { return cuda::kSuccess; };
  all.event_query = [](cuda::Event) {
    if (answers->holds_query) answers->abort_returns.wait();
    return answers->event_code.load();
  };
  return library;
}

nccl::Library fake_nccl() {
  nccl::Library library;
  library.version = 22705;
  nccl::Functions& all = library.functions;
  all.get_error_string = [](int) { return "words of NCCL"; };
  all.get_last_error = [](nccl::Comm) { return "why"; };
  all.comm_init_rank_config = [](nccl::Comm* comm, int, nccl::UniqueId, int, nccl::Config*) {
    return *comm = &a_stream, static_cast<int>(nccl::kInProgress);
  };
  all.comm_get_async_error = [](nccl::Comm, int* state) {
    return *state = answers->comm_state, static_cast<int>(nccl::kSuccess);
  };
  all.comm_abort = [](nccl::Comm) {
    ++answers->aborts;
    if (answers->holds_abort) answers->abort_returns.wait();
    return static_cast<int>(nccl::kSuccess);
  };
  all.comm_finalize = [](nccl::Comm) { return static_cast<int>(nccl::kInProgress); };
  all.comm_destroy = [](nccl::Comm) {
    return ++answers->destroyed, static_cast<int>(nccl::kSuccess);
  };
  return library;
}

// As those of a process that uses NCCL, they are there for as long as its threads.
const cuda::Library& cuda_library() {
  static const cuda::Library library = fake_cuda();
  return library;
}
const nccl::Library& nccl_library() {
  static const nccl::Library library = fake_nccl();
  return library;
}
Answers& new_answers() {
  static auto* const kept = new std::deque<Answers>();
  return *(answers = &kept->emplace_back());
}

class NcclProcessTest : public testing::Test {
 protected:
  NcclProcessTest() {
    comm_ = make_comm();
    events_ = std::make_shared<NcclEvents>(&cuda_.functions, 0);
  }

  ~NcclProcessTest() override {
    answers_.lets_abort_return.set_value();
    process_->end(group_, {StatusCode::kAborted, "the test is over"});
    process_->wait_for_end(*group_);
    process_->remove(group_.get());
  }

  std::shared_ptr<NcclComm> make_comm() const {
    auto made = NcclComm::create({.cuda = &cuda_.functions, .nccl = &nccl_, .size = 2});
    EXPECT_TRUE((*made)->begin({}).ok());
    return std::move(*made);
  }

  // A group with one operation on the device.
  Work start(TimeNs grace, TimeNs deadline = kNever) {
    group_ = std::make_shared<NcclGroup>(NcclGroup::Options{.on_cause = {}, .grace = grace});
    process_->add(group_);
    auto operation = std::make_shared<NcclOperation>();
    operation->name = "all_reduce";
    operation->deadline = deadline;
    operation->end = *events_->take();
    operation->end->is_recorded = true;
    operation->state = new engine::WorkState(process_);
    operation->work = Work(operation->state);
    const Work work = operation->work;
    const NcclProcess::Lock held = process_->lock();
    group_->set_comm(comm_);
    group_->start(operation);
    process_->watch();
    return work;
  }

  Answers& answers_ = new_answers();
  const cuda::Library& cuda_ = cuda_library();
  const nccl::Library& nccl_ = nccl_library();
  std::shared_ptr<NcclComm> comm_;
  std::shared_ptr<NcclEvents> events_;
  std::shared_ptr<NcclProcess> process_ = std::make_shared<NcclProcess>(&cuda_, &nccl_);
  std::shared_ptr<NcclGroup> group_;
};

constexpr TimeNs kLong = 100'000'000'000;

TEST_F(NcclProcessTest, AWorkEndsWhenItsEventIsThereWithoutAnybodyWaiting) {
  Work work = start(kLong);
  std::promise<Status> told;
  work.on_done([&](const Status& status) { told.set_value(status); });
  answers_.event_code = cuda::kSuccess;
  EXPECT_TRUE(told.get_future().get().ok());
}

TEST_F(NcclProcessTest, TheAnswerNotYetIsNotLeftToTheProgram) {
  Work work = start(kLong);
  EXPECT_FALSE(work.done());
  EXPECT_GT(answers_.last_errors_taken, 0);
}

TEST_F(NcclProcessTest, AnErrorOfTheGpuEndsTheGroup) {
  Work work = start(kLong);
  answers_.event_code = 700;
  const Status status = work.wait();
  EXPECT_EQ(status.code(), StatusCode::kSystem);
  EXPECT_THAT(status.message(), HasSubstr("all_reduce (on rank 0): the GPU's work failed: words"));
  EXPECT_EQ(answers_.aborts, 1);
}

TEST_F(NcclProcessTest, AnErrorOfNcclEndsTheGroup) {
  Work work = start(kLong);
  answers_.comm_state = nccl::kInternalError;
  EXPECT_THAT(work.wait().message(), HasSubstr("words of NCCL (3): why"));
  EXPECT_EQ(answers_.aborts, 1);
}

TEST_F(NcclProcessTest, WorksEndOnlyOnceNcclIsAborted) {
  answers_.holds_abort = true;
  Work work = start(kLong);
  process_->end(group_, {StatusCode::kAborted, "enough"});
  while (answers_.aborts == 0) std::this_thread::yield();
  EXPECT_FALSE(work.done());
  answers_.lets_abort_return.set_value();
  EXPECT_EQ(work.wait().message(), "enough");
  answers_.lets_abort_return = {};
}

TEST_F(NcclProcessTest, AnAbortThatDoesNotReturnHoldsNobodyForEver) {
  answers_.holds_abort = true;
  Work work = start(50'000'000);
  process_->end(group_, {StatusCode::kAborted, "enough."});
  EXPECT_THAT(work.wait().message(), HasSubstr("enough. What is under way in NCCL"));
}

// Neither the end nor a waiting thread needs what the background thread is stuck in.
TEST_F(NcclProcessTest, ACallOfCudaThatDoesNotReturnHoldsNobodyForEver) {
  Work work = start(50'000'000);
  answers_.holds_query = true;
  std::thread ends([this] { process_->end(group_, {StatusCode::kAborted, "enough"}); });
  ends.join();
  while (answers_.aborts == 0) std::this_thread::yield();
  {
    const NcclProcess::Lock held = process_->lock();
    EXPECT_TRUE(group_->has_ended());
  }
  // A thread that only waits, as one does that has looked for a moment.
  process_->wait_for_end(*group_);
  EXPECT_EQ(work.status().message(), "enough");
}

TEST_F(NcclProcessTest, AStreamIsNotMadeToWaitForWhatHasFailed) {
  Work work = start(kLong);
  process_->end(group_, {StatusCode::kPeerLost, "rank 1 is gone"});
  NcclOrder order(process_, group_, *events_->take(), 0);
  auto* state = new engine::WorkState(process_);
  state->finish({StatusCode::kPeerLost, "rank 1 is gone"});
  EXPECT_EQ(order.wait_on(state, {}, -1).message(), "rank 1 is gone");
  state->release();
}

TEST_F(NcclProcessTest, WhatIsWellIsFinalisedAndWhatIsNotQuietInTimeAborted) {
  Work work = start(kLong);
  answers_.event_code = cuda::kSuccess;
  EXPECT_TRUE(work.wait().ok());
  EXPECT_FALSE(process_->leave(group_, {StatusCode::kAborted, "closed"}));
  comm_->close(kNever);
  EXPECT_EQ(answers_.destroyed, 1);
  EXPECT_EQ(answers_.aborts, 0);
  const std::shared_ptr<NcclComm> other = make_comm();
  answers_.comm_state = nccl::kInProgress;
  other->close(0);
  EXPECT_EQ(answers_.destroyed, 1);
  EXPECT_EQ(answers_.aborts, 1);
  EXPECT_EQ(other->look().error.code(), StatusCode::kAborted);
}

TEST_F(NcclProcessTest, EventsAreUsedAgain) {
  (void)start(kLong);
  const NcclEvent* first = (*events_->take()).get();
  EXPECT_EQ((*events_->take()).get(), first);
}

}  // namespace
}  // namespace ciuic::backend
