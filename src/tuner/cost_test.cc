// SPDX-License-Identifier: Apache-2.0
// cost_test.cc: predictions against sums that can be done by hand.

#include "tuner/cost.h"

#include <gtest/gtest.h>

#include "plan/registry.h"

namespace ciuic::tuner {
namespace {

using plan::Algorithm;
using plan::Layout;
using plan::Operation;

double predict(Operation operation, Algorithm algorithm, const char* layout_text, int64_t bytes,
               const TuningTable& table = {}, size_t chunk_bytes = size_t{1} << 30) {
  const Layout layout = *Layout::parse(layout_text);
  std::vector<plan::Plan> plans;
  for (int rank = 0; rank < layout.size(); ++rank) {
    plans.push_back(make(operation, algorithm, layout, rank, 0));
  }
  return predicted_us(plans, layout, {bytes, DataType::kUInt8, chunk_bytes}, table);
}

// Only what is named costs anything.
TuningTable free_of_cost() {
  TuningTable table;
  table.step_ns = table.shm_latency_ns = table.tcp_latency_ns = table.tcp_message_ns = 0;
  table.shm_mb_per_s = table.tcp_mb_per_s = 1'000'000'000;
  table.copy_mb_per_s = table.reduce_mb_per_s = 1'000'000'000;
  return table;
}

TEST(CostTest, LatenciesAdd) {
  TuningTable table = free_of_cost();
  table.tcp_latency_ns = 10'000;
  EXPECT_NEAR(predict(Operation::kAllReduce, Algorithm::kRing, "4x1", 0, table), 60, 0.1);
  EXPECT_NEAR(predict(Operation::kAllReduce, Algorithm::kRecursiveDoubling, "4x1", 0, table), 20,
              0.1);
  EXPECT_NEAR(predict(Operation::kBarrier, Algorithm::kDissemination, "8x1", 0, table), 30, 0.1);
  EXPECT_NEAR(predict(Operation::kBroadcast, Algorithm::kBinomial, "8x1", 0, table), 30, 0.1);
  EXPECT_NEAR(predict(Operation::kBarrier, Algorithm::kTwoLevel, "2x4", 0, table), 10, 0.1);
}

TEST(CostTest, MessagesAcrossHostsTakeProcessorTimeAtBothEnds) {
  TuningTable table = free_of_cost();
  table.tcp_message_ns = 1000;
  EXPECT_NEAR(predict(Operation::kGather, Algorithm::kDirect, "5x1", 8, table), 5, 0.1);
  EXPECT_NEAR(predict(Operation::kGather, Algorithm::kDirect, "5", 8, table), 0, 0.1);
  EXPECT_NEAR(predict(Operation::kBroadcast, Algorithm::kBinomial, "4x1", 8, table), 4, 0.1);
}

TEST(CostTest, BytesPassThroughOnePortAHost) {
  TuningTable table = free_of_cost();
  table.tcp_mb_per_s = 1000;  // a byte a nanosecond
  EXPECT_NEAR(predict(Operation::kAllReduce, Algorithm::kRing, "4x1", 4000, table), 6, 0.01);
  EXPECT_NEAR(predict(Operation::kBroadcast, Algorithm::kDirect, "4x1", 1000, table), 3, 0.01);
  EXPECT_NEAR(predict(Operation::kAllReduce, Algorithm::kRecursiveDoubling, "2x1", 1000, table), 1,
              0.01);
}

TEST(CostTest, ChunksArePipelined) {
  TuningTable table = free_of_cost();
  table.tcp_mb_per_s = 1000;
  table.shm_mb_per_s = 1000;
  // To the other host, and there to the neighbour: the second hop is a chunk behind the first.
  const auto broadcast = [&](size_t chunk_bytes) {
    return predict(Operation::kBroadcast, Algorithm::kTwoLevel, "1+2", 16000, table, chunk_bytes);
  };
  EXPECT_NEAR(broadcast(16000), 32, 0.1);
  EXPECT_NEAR(broadcast(4000), 20, 0.1);
  EXPECT_NEAR(broadcast(1000), 17, 0.1);
}

TEST(CostTest, FoldsCostWhatTheyRead) {
  TuningTable table = free_of_cost();
  table.reduce_mb_per_s = 1000;
  EXPECT_NEAR(predict(Operation::kAllReduce, Algorithm::kOneShot, "4", 1000, table), 4, 0.01);
  EXPECT_NEAR(predict(Operation::kAllReduce, Algorithm::kTwoShot, "4", 1000, table), 1, 0.01);
}

TEST(CostTest, SentBytes) {
  const Layout layout = Layout::one_host(4);
  const Load load{1000, DataType::kFloat32, 1 << 16};
  EXPECT_EQ(sent_bytes(make(Operation::kAllReduce, Algorithm::kRing, layout, 0, 0), load), 6000);
  EXPECT_EQ(sent_bytes(make(Operation::kAllReduce, Algorithm::kOneShot, layout, 0, 0), load),
            12000);
  EXPECT_EQ(sent_bytes(make(Operation::kBarrier, Algorithm::kDirect, layout, 0, 0), load), 0);
}

}  // namespace
}  // namespace ciuic::tuner
