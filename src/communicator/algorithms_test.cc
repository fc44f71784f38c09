// SPDX-License-Identifier: Apache-2.0
// algorithms_test.cc: calls that name their algorithm: one of the library's, or the caller's own.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "communicator/test_group.h"
#include "plan/plan_json.h"
#include "plan/registry.h"

namespace ciuic {
namespace {

using Values = std::vector<int64_t>;

MutableBuffer of(Values& values) {
  return {values.data(), static_cast<int64_t>(values.size()), DataType::kInt64, {}};
}

class Algorithms : public testing::TestWithParam<int> {};

// The library's algorithms by name, and the caller's own plans: here copies of the library's.
TEST_P(Algorithms, AreTakenByName) {
  Ranks ranks = join_all(GetParam());
  for (const Status& status : on_all(GetParam(), [&](int rank) {
         Communicator& communicator = *ranks[static_cast<size_t>(rank)];
         const int size = communicator.size();
         const plan::Layout layout = plan::Layout::one_host(size);
         for (const plan::Algorithm algorithm : plan::algorithms_for(Operation::kAllReduce)) {
           if (!plan::fits(Operation::kAllReduce, algorithm, layout)) continue;
           plan::PlanFile file{Operation::kAllReduce, layout, 0, {}};
           for (int each = 0; each < size; ++each) {
             file.plans.push_back(plan::make(Operation::kAllReduce, algorithm, layout, each, 0));
             file.plans.back().algorithm = "mine";
           }
           CIUIC_RETURN_IF_ERROR(communicator.add_plan(plan::to_json(file)));
           for (const std::string& name :
                {std::string(plan::name_of(algorithm)), std::string("mine")}) {
             Values sum(1003, communicator.rank());
             Call call = Call::all_reduce(of(sum), of(sum), ReduceOp::kSum);
             call.algorithm = name;
             CIUIC_RETURN_IF_ERROR(wait(communicator.submit(call)));
             if (sum != Values(1003, size * (size - 1) / 2))
               return Status(StatusCode::kSystem, name);
           }
         }
         Values values(4);
         Call call = Call::broadcast(of(values), 0);
         call.algorithm = "mine";
         const Status unknown = wait(communicator.submit(call));
         EXPECT_EQ(unknown.code(), StatusCode::kInvalidArgument);
         EXPECT_NE(unknown.message().find("binomial"), std::string::npos) << unknown.message();
         return wait(communicator.barrier());
       })) {
    EXPECT_TRUE(status.ok()) << status.message();
  }
}

INSTANTIATE_TEST_SUITE_P(OfRanks, Algorithms, testing::Values(1, 2, 3, 5));

plan::PlanFile ring_of(int size) {
  plan::PlanFile file{Operation::kAllReduce, plan::Layout::one_host(size), 0, {}};
  for (int rank = 0; rank < size; ++rank) {
    file.plans.push_back(plan::make(file.operation, plan::Algorithm::kRing, file.layout, rank, 0));
    file.plans.back().algorithm = "mine";
  }
  return file;
}

TEST(OwnPlan, IsRefusedWhereItIsWrong) {
  Ranks ranks = join_all(2);
  const auto refusal = [&](const plan::PlanFile& file) {
    const Status status = ranks[0]->add_plan(plan::to_json(file));
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status.message();
    return status.message();
  };
  EXPECT_NE(refusal(ring_of(3)).find("layout"), std::string::npos);
  plan::PlanFile file = ring_of(2);
  file.plans[0].algorithm = file.plans[1].algorithm = "ring";
  EXPECT_NE(refusal(file).find("cannot be its name"), std::string::npos);
  file = ring_of(2);
  file.plans[1].algorithm = "yours";
  EXPECT_NE(refusal(file).find("different algorithms"), std::string::npos);
  file = ring_of(2);
  file.plans[1].steps.pop_back();
  file.plans[1].finish();
  EXPECT_NE(refusal(file).find("mine is wrong"), std::string::npos);
  EXPECT_EQ(ranks[0]->add_plan("{").code(), StatusCode::kInvalidArgument);
}

TEST(OwnPlan, AnotherOneOfTheSameNameIsAMismatch) {
  Ranks ranks = join_all(2);
  for (const Status& status : on_all(2, [&](int rank) {
         plan::PlanFile file = ring_of(2);
         for (int each = 0; rank == 1 && each < 2; ++each) {
           file.plans[static_cast<size_t>(each)] =
               plan::make(file.operation, plan::Algorithm::kTwoShot, file.layout, each, 0);
           file.plans[static_cast<size_t>(each)].algorithm = "mine";
         }
         Communicator& communicator = *ranks[static_cast<size_t>(rank)];
         CIUIC_RETURN_IF_ERROR(communicator.add_plan(plan::to_json(file)));
         Values sum(8);
         Call call = Call::all_reduce(of(sum), of(sum), ReduceOp::kSum);
         call.algorithm = "mine";
         return wait(communicator.submit(call));
       })) {
    EXPECT_EQ(status.code(), StatusCode::kMismatch) << status.message();
  }
}

}  // namespace
}  // namespace ciuic
