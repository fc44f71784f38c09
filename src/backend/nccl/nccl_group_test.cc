// SPDX-License-Identifier: Apache-2.0
// nccl_group_test.cc: what time, deaths and NCCL's errors make of a group's operations.

#include "backend/nccl/nccl_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ciuic::backend {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr TimeNs kSecond = 1'000'000'000;
constexpr TimeNs kGrace = 5 * kSecond;

class NcclGroupTest : public testing::Test {
 protected:
  std::shared_ptr<NcclOperation> start(const char* name, uint32_t number, TimeNs deadline = kNever,
                                       uint32_t calls = 1) {
    auto operation = std::make_shared<NcclOperation>();
    operation->name = name;
    operation->is_numbered = true;
    operation->first = number;
    operation->last = number + calls - 1;
    operation->called_at = 100 + number;
    operation->deadline = deadline;
    operation->timeout_ms = 7;
    operation->state = new engine::WorkState();
    operation->work = Work(operation->state);
    operation->end = std::make_shared<NcclEvent>();
    group_.start(operation);
    return operation;
  }

  std::vector<engine::Cause> causes_;
  NcclGroup group_{{.rank = 1,
                    .on_cause = [this](const engine::Cause& cause) { causes_.push_back(cause); },
                    .grace = kGrace}};
};

TEST_F(NcclGroupTest, TheOldestIsTheOneThatIsAskedFor) {
  const auto first = start("all_reduce", 4);
  const auto second = start("reduce", 5, kNever, 3);
  EXPECT_EQ(group_.oldest_launched(), nullptr);
  second->end->is_recorded = true;
  EXPECT_EQ(group_.oldest_launched(), nullptr);
  first->end->is_recorded = true;
  EXPECT_EQ(group_.oldest_launched(), first);
  engine::GroupProgress progress{.lowest = 8, .next = 8};
  group_.add_to(&progress);
  EXPECT_EQ(progress.lowest, 4u);
  EXPECT_EQ(progress.waits_since, 104);
  group_.finish(first);
  EXPECT_EQ(first->work.status().message(), "");
  EXPECT_EQ(first->state, nullptr);
  EXPECT_EQ(group_.oldest_launched(), second);
  EXPECT_FALSE(group_.needs(4));
  EXPECT_TRUE(group_.needs(5));
  EXPECT_TRUE(group_.needs(7));
  EXPECT_FALSE(group_.needs(8));
}

TEST_F(NcclGroupTest, AnOlderOperationOfTheNativeBackendIsTheLowest) {
  start("all_reduce", 4);
  engine::GroupProgress progress{.lowest = 2, .next = 8, .waits_since = 50};
  group_.add_to(&progress);
  EXPECT_EQ(progress.lowest, 2u);
  EXPECT_EQ(progress.waits_since, 50);
}

TEST_F(NcclGroupTest, WhatIsLateIsReportedOnceAndEndsAsIsDecided) {
  const auto operation = start("all_reduce", 4, kSecond);
  group_.check(kSecond - 1);
  EXPECT_TRUE(causes_.empty());
  group_.check(kSecond);
  group_.check(kSecond + 1);
  ASSERT_EQ(causes_.size(), 1u);
  EXPECT_TRUE(causes_[0].is_late);
  EXPECT_EQ(causes_[0].sequence, 4u);
  EXPECT_THAT(
      causes_[0].status.message(),
      HasSubstr("all_reduce (operation 4 of its group, on rank 1) did not end within 7 ms"));
  EXPECT_NE(operation->state, nullptr);
  group_.end({StatusCode::kTimeout, "rank 2 is late"}, kSecond);
  EXPECT_NE(operation->state, nullptr);  // NCCL may still write
  group_.end_works();
  EXPECT_EQ(operation->work.status().message(), "rank 2 is late");
  EXPECT_TRUE(group_.is_told());
  EXPECT_EQ(start("all_reduce", 5)->work.status().message(), "rank 2 is late");
}

TEST_F(NcclGroupTest, WhereNcclIsNotAbortedWorksEndAllTheSameAndSaySo) {
  const auto operation = start("all_reduce", 4);
  group_.set_aborting(true);
  group_.end({StatusCode::kAborted, "enough."}, kSecond);
  group_.check(kSecond + kGrace - 1);
  EXPECT_NE(operation->state, nullptr);
  EXPECT_TRUE(group_.is_ending(kSecond + kGrace));
  group_.check(kSecond + kGrace);
  EXPECT_THAT(operation->work.status().message(), HasSubstr("enough. What is under way in NCCL"));
  EXPECT_FALSE(group_.is_ending(kSecond + 2 * kGrace));  // it is not waited for any more
}

TEST_F(NcclGroupTest, ADeathEndsWhatDoesNotEndByItself) {
  const auto operation = start("all_reduce", 4);
  group_.mark_gone(2, {StatusCode::kPeerLost, "rank 2 is gone"}, false, kSecond);
  group_.check(kSecond);
  group_.finish(operation);
  group_.check(3 * kSecond);
  EXPECT_TRUE(causes_.empty());
  EXPECT_EQ(operation->state, nullptr);
  start("reduce", 5);  // what comes later cannot end
  ASSERT_EQ(causes_.size(), 1u);
  EXPECT_EQ(causes_[0].about, 2);
  EXPECT_THAT(causes_[0].status.message(), HasSubstr("rank 2 is gone, while rank 1 was in reduce"));
}

TEST_F(NcclGroupTest, ADeathIsReportedAfterAMomentWhereAnOperationIsUnderWay) {
  start("all_reduce", 4);
  group_.mark_gone(3, {StatusCode::kPeerLost, "rank 3 left"}, true, kSecond);
  group_.check(9 * kSecond);
  EXPECT_TRUE(causes_.empty());
  group_.mark_gone(2, {StatusCode::kPeerLost, "rank 2 is gone"}, false, 10 * kSecond);
  group_.check(11 * kSecond);
  EXPECT_EQ(causes_.size(), 1u);
}

TEST_F(NcclGroupTest, AnErrorOfNcclIsACauseThatNamesTheOperation) {
  start("all_reduce", 4);
  group_.check_comm({.error = {StatusCode::kSystem, "NCCL failed: unhandled"}}, kSecond);
  ASSERT_EQ(causes_.size(), 1u);
  EXPECT_EQ(causes_[0].status.message(),
            "all_reduce (operation 4 of its group, on rank 1): NCCL failed: unhandled");
}

// Which rank it is, and why, is the control plane's to say.
TEST_F(NcclGroupTest, AnErrorOfAnotherRankWaitsForWhoKnowsMore) {
  start("all_reduce", 4);
  const NcclComm::State remote{.error = {StatusCode::kPeerLost, "remote"}, .is_remote = true};
  group_.check_comm(remote, kSecond);
  EXPECT_TRUE(causes_.empty());
  group_.check_comm(remote, 4 * kSecond);
  EXPECT_EQ(causes_.size(), 1u);
}

TEST_F(NcclGroupTest, MessagesHaveNoNumber) {
  auto operation = start("send", 0);
  operation->is_numbered = false;
  engine::GroupProgress progress{.lowest = 8, .next = 8};
  group_.add_to(&progress);
  EXPECT_EQ(progress.lowest, 8u);
  EXPECT_EQ(progress.message_since, 100);
  EXPECT_FALSE(group_.needs(0));
  EXPECT_THAT(group_.text_of(*operation), Not(HasSubstr("operation")));
}

TEST(NcclGroupAlone, WithoutAControlPlaneACauseIsTheEnd) {
  NcclGroup group({.on_cause = {}});
  EXPECT_FALSE(group.wants_end());
  group.report({.status = {StatusCode::kAborted, "enough"}});
  EXPECT_TRUE(group.wants_end());
  group.end(Status(group.status()), 0);
  EXPECT_FALSE(group.wants_end());
  EXPECT_TRUE(group.has_ended());
}

}  // namespace
}  // namespace ciuic::backend
