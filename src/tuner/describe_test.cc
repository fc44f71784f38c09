// SPDX-License-Identifier: Apache-2.0
// describe_test.cc: answers to plan queries, and queries that have none.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "ciuic/plan.h"

namespace ciuic {
namespace {

nlohmann::json described(const PlanQuery& query) {
  const Result<std::string> text = describe_plan(query);
  EXPECT_TRUE(text.ok()) << text.status().message();
  if (!text.ok()) return nullptr;
  return nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false);
}

TEST(DescribePlanTest, AllReduceOfFiveRanks) {
  PlanQuery query;
  query.operation = "all_reduce";
  query.ranks = 5;
  query.bytes = 1 << 20;
  const nlohmann::json json = described(query);
  EXPECT_EQ(json["algorithm"], "two_shot");
  EXPECT_EQ(json["chosen"], true);
  EXPECT_EQ(json["layout"], "5");
  EXPECT_EQ(json["count"], 1 << 18);
  EXPECT_EQ(json["root"], nullptr);
  EXPECT_GT(json["predicted_us"].get<double>(), 0);
  ASSERT_EQ(json["plans"].size(), 5u);
  EXPECT_EQ(json["plans"][4]["rank"], 4);
  EXPECT_EQ(json["plans"][0]["steps"].size(), 10u);
  EXPECT_EQ(json["plans"][0]["steps"][0]["kind"], "send");
  EXPECT_EQ(json["plans"][0]["steps"][0]["target"], nullptr);
  EXPECT_EQ(json["totals"]["steps"], 50);
  EXPECT_EQ(json["totals"]["messages"], 5 * 8);
}

TEST(DescribePlanTest, OneRankOfANamedAlgorithm) {
  PlanQuery query;
  query.operation = "reduce";
  query.layout = "3+2";
  query.bytes = 1003;
  query.dtype = "bfloat16";
  query.algorithm = "binomial";
  query.root = 4;
  query.rank = 4;
  const nlohmann::json json = described(query);
  EXPECT_EQ(json["algorithm"], "binomial");
  EXPECT_EQ(json["chosen"], false);
  EXPECT_EQ(json["bytes"], 1002);
  EXPECT_EQ(json["root"], 4);
  ASSERT_EQ(json["plans"].size(), 1u);
  EXPECT_EQ(json["plans"][0]["sent_bytes"], 0);
  EXPECT_EQ(json["totals"]["sent_bytes"], 4 * 1002);
}

TEST(DescribePlanTest, BarrierHasNoBytes) {
  PlanQuery query;
  query.operation = "barrier";
  query.ranks = 4;
  query.layout = "4x1";
  query.bytes = 4096;
  const nlohmann::json json = described(query);
  EXPECT_EQ(json["algorithm"], "dissemination");
  EXPECT_EQ(json["bytes"], 0);
  EXPECT_EQ(json["totals"]["sent_bytes"], 0);
}

TEST(DescribePlanTest, BytesAreThoseOfTheWholeInput) {
  PlanQuery query;
  query.ranks = 4;
  query.bytes = 4000;
  query.root = 2;
  for (const char* name : {"reduce_scatter", "all_to_all", "scatter", "gather", "all_gather"}) {
    query.operation = name;
    const nlohmann::json json = described(query);
    const bool has_blocks = query.operation != "gather" && query.operation != "all_gather";
    EXPECT_EQ(json["bytes"], 4000) << name;
    EXPECT_EQ(json["count"], has_blocks ? 250 : 1000) << name;
  }
  query.operation = "scatter";
  query.bytes = 4015;
  EXPECT_EQ(described(query)["bytes"], 4000);
  EXPECT_EQ(described(query)["plans"][2]["sent_bytes"], 3000);
}

TEST(DescribePlanTest, BadQueriesAreRefused) {
  PlanQuery good;
  good.operation = "all_reduce";
  good.ranks = 5;
  const auto refuse = [&](void (*spoil)(PlanQuery*), const char* message,
                          StatusCode code = StatusCode::kInvalidArgument) {
    PlanQuery query = good;
    spoil(&query);
    const Result<std::string> text = describe_plan(query);
    ASSERT_FALSE(text.ok()) << message;
    EXPECT_EQ(text.status().code(), code);
    EXPECT_NE(text.status().message().find(message), std::string::npos) << text.status().message();
  };
  ASSERT_TRUE(describe_plan(good).ok());
  refuse([](PlanQuery* query) { query->operation = "all_produce"; }, "there are all_reduce");
  refuse([](PlanQuery* query) { query->ranks = 0; }, "how many ranks");
  refuse([](PlanQuery* query) { query->ranks = -1; }, "must be from 1");
  refuse([](PlanQuery* query) { query->ranks = 100000; }, "must be from 1");
  refuse([](PlanQuery* query) { query->layout = "3+3"; }, "has 6 ranks, not 5");
  refuse([](PlanQuery* query) { query->layout = "3x"; }, "not understood");
  refuse([](PlanQuery* query) { query->bytes = -1; }, "bytes is -1");
  refuse([](PlanQuery* query) { query->dtype = "float33"; }, "there are float32");
  refuse([](PlanQuery* query) { query->op = "summ"; }, "there are sum");
  refuse([](PlanQuery* query) { query->algorithm = "magic"; }, "it has one_shot");
  refuse([](PlanQuery* query) { query->algorithm = "two_level"; }, "on layout 5");
  refuse([](PlanQuery* query) { query->algorithm = "dissemination"; }, "has no algorithm");
  refuse([](PlanQuery* query) { query->rank = 5; }, "rank 5 is outside");
  refuse(
      [](PlanQuery* query) {
        query->operation = "broadcast";
        query->root = 5;
      },
      "root 5 is outside");
}

TEST(DescribePlanTest, APlanFile) {
  PlanQuery query;
  query.operation = "all_reduce";
  query.algorithm = "two_level";
  query.layout = "2x2";
  query.bytes = 4096;
  const Result<std::string> file = export_plan(query);
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_TRUE(prove_plan(*file).ok());
  PlanQuery of_file;
  of_file.bytes = 4096;
  of_file.file = *file;
  nlohmann::json expected = described(query);
  nlohmann::json json = described(of_file);
  EXPECT_EQ(json["chosen"], false);
  for (const char* name :
       {"operation", "algorithm", "layout", "root", "count", "plans", "totals"}) {
    EXPECT_EQ(json[name], expected[name]) << name;
  }
  EXPECT_GT(json["predicted_us"].get<double>(), 0);
  EXPECT_EQ(*export_plan(of_file), *file);

  of_file.rank = 4;
  EXPECT_EQ(describe_plan(of_file).status().code(), StatusCode::kInvalidArgument);
}

TEST(DescribePlanTest, AWrongPlanFileIsNeitherProvedNorCosted) {
  PlanQuery query;
  query.operation = "all_reduce";
  query.algorithm = "one_shot";
  query.ranks = 3;
  std::string file = *export_plan(query);
  const std::string place = R"("own_place":1,)";
  file.erase(file.find(place), place.size());
  query.file = file;
  for (const Status& status : {prove_plan(file), describe_plan(query).status()}) {
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_NE(status.message().find("rank 1, output 0"), std::string::npos) << status.message();
  }
  EXPECT_EQ(prove_plan("{}").code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace ciuic
