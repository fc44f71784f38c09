// SPDX-License-Identifier: Apache-2.0
// plan_json_test.cc: plans there and back, and files that are not plans.

#include "plan/plan_json.h"

#include <gtest/gtest.h>

#include <random>

#include "plan/plan_cases.h"
#include "plan/prover.h"

namespace ciuic::plan {
namespace {

PlanFile file_of(const PlanCase& plan_case) {
  return {plan_case.operation, plan_case.layout, plan_case.root, plan_case.plans()};
}

std::string good() {
  return to_json(
      file_of({Operation::kAllReduce, Algorithm::kRing, *Layout::parse("2+1"), /*root=*/0}));
}

TEST(PlanJsonTest, EveryPlanGoesThereAndBack) {
  for (const int size : {1, 2, 5}) {
    for (const PlanCase& plan_case : cases_of(size)) {
      const std::string text = to_json(file_of(plan_case));
      const Result<PlanFile> read = plan_file_from_json(text);
      ASSERT_TRUE(read.ok()) << plan_case.text() << ": " << read.status().message();
      EXPECT_EQ(to_json(*read), text);
      const Status status = prove({read->operation, read->root}, read->plans);
      EXPECT_TRUE(status.ok()) << plan_case.text() << ": " << status.message();
      const Result<Plan> last = plan_from_json(to_json(read->plans[size - 1]), size, size - 1);
      ASSERT_TRUE(last.ok()) << last.status().message();
      EXPECT_EQ(to_json(*last), to_json(read->plans[size - 1]));
    }
  }
}

TEST(PlanJsonTest, WrongFieldsAreRefused) {
  const auto refuse = [](const std::string& from, const std::string& to) {
    std::string text = good();
    const size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    text.replace(at, from.size(), to);
    const Result<PlanFile> read = plan_file_from_json(text);
    EXPECT_FALSE(read.ok()) << from << " -> " << to;
    EXPECT_EQ(read.status().code(), StatusCode::kInvalidArgument);
  };
  refuse("\"all_reduce\"", "\"all_produce\"");
  refuse("\"all_reduce\"", "7");
  refuse("\"2+1\"", "\"2+2\"");
  refuse("\"2+1\"", "null");
  refuse("\"root\":0", "\"root\":3");
  refuse("\"root\":0", "\"root\":-1");
  refuse("\"root\":0", "\"root\":0.5");
  refuse("\"root\":0", "\"loot\":0");
  refuse("\"plans\":[", "\"plans\":[{},");
  refuse("\"blocks\":3", "\"blocks\":-3");
  refuse("\"blocks\":3", "\"blocks\":18446744073709551615");
  refuse("\"blocks\":3", "\"blocks\":2");
  refuse("\"split\"", "\"spilt\"");
  refuse("\"kind\":\"send\"", "\"kind\":\"lend\"");
  refuse("\"kind\":\"send\"", "\"kind\":\"receive\"");
  refuse("\"peers\":[1]", "\"peers\":[3]");
  refuse("\"peers\":[1]", "\"peers\":[0]");
  refuse("\"peers\":[1]", "\"peers\":[]");
  refuse("\"peers\":[1]", "\"peers\":[1,1]");
  refuse("\"peers\":[1]", "\"peers\":{\"1\":1}");
  refuse("[\"input\",0,1]", "[\"input\",0,4]");
  refuse("[\"input\",0,1]", "[\"input\",-1,1]");
  refuse("[\"input\",0,1]", "[\"exput\",0,1]");
  refuse("[\"input\",0,1]", "[\"input\",0]");
  refuse("[\"input\",0,1]", "[\"input\",0,1,1]");
  refuse("[\"output\",2,1]", "[\"input\",2,1]");
  refuse("\"received_raw\":true", "\"received_raw\":1");
  refuse("\"received_raw\":true", "\"unknown\":true");
}

TEST(PlanJsonTest, GarbageIsRefused) {
  const std::string whole = good();
  for (size_t length = 0; length < whole.size(); ++length) {
    EXPECT_FALSE(plan_file_from_json(whole.substr(0, length)).ok()) << length;
  }
  EXPECT_FALSE(plan_file_from_json(std::string(100000, '[')).ok());
  EXPECT_FALSE(plan_file_from_json("null").ok());
  EXPECT_FALSE(plan_from_json("[1]", 1, 0).ok());
  std::mt19937_64 random(7);
  int refused = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string text = whole;
    const int changes = 1 + static_cast<int>(random() % 3);
    for (int change = 0; change < changes; ++change) {
      text[random() % text.size()] = static_cast<char>(random() % 256);
    }
    refused += plan_file_from_json(text).ok() ? 0 : 1;  // some changes are harmless
  }
  EXPECT_GT(refused, 2000);
}

}  // namespace
}  // namespace ciuic::plan
