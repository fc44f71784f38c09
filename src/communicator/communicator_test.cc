// SPDX-License-Identifier: Apache-2.0
// communicator_test.cc: groups whose ranks are threads: join, operations, close, refusals.

#include "ciuic/communicator.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <numeric>
#include <thread>
#include <vector>

#include "bootstrap/memory_store.h"
#include "communicator/test_group.h"

namespace ciuic {
namespace {

class Group : public testing::TestWithParam<int> {};

TEST_P(Group, ReducesAndGathersAnyCount) {
  const int size = GetParam();
  Ranks ranks = join_all(size);
  for (int64_t count : {0, 1, 3, 1000, 300'000}) {
    for (const Status& status : on_all(size, [&](int rank) {
           Communicator& communicator = *ranks[static_cast<size_t>(rank)];
           std::vector<int32_t> values(static_cast<size_t>(count), rank + 1);
           MutableBuffer buffer{values.data(), count, DataType::kInt32, {}};
           Status status_of = wait(communicator.all_reduce(buffer, buffer, ReduceOp::kSum));
           EXPECT_EQ(values,
                     std::vector<int32_t>(static_cast<size_t>(count), size * (size + 1) / 2));
           std::vector<int32_t> all(static_cast<size_t>(count * size));
           std::fill(values.begin(), values.end(), rank);
           if (status_of.ok()) {
             status_of = wait(
                 communicator.all_gather(buffer, {all.data(), count * size, DataType::kInt32, {}}));
           }
           for (int64_t i = 0; i < count * size; ++i) {
             if (all[static_cast<size_t>(i)] != i / count)
               return Status(StatusCode::kSystem, "wrong");
           }
           return status_of.ok() ? wait(communicator.barrier()) : status_of;
         })) {
      EXPECT_TRUE(status.ok()) << status.message();
    }
  }
}

TEST_P(Group, ReducesToAndBroadcastsFromEveryRoot) {
  const int size = GetParam();
  Ranks ranks = join_all(size);
  for (int root = 0; root < size; ++root) {
    for (const Status& status : on_all(size, [&](int rank) {
           Communicator& communicator = *ranks[static_cast<size_t>(rank)];
           std::vector<double> values(777, rank + 1);
           std::vector<double> result(rank == root ? 777 : 0);
           const Status reduced = wait(communicator.reduce(
               {values.data(), 777, DataType::kFloat64, {}},
               {result.data(), static_cast<int64_t>(result.size()), DataType::kFloat64, {}},
               ReduceOp::kMax, root));
           if (!reduced.ok()) return reduced;
           EXPECT_EQ(values, std::vector<double>(777, rank + 1)) << "the input stays as it was";
           EXPECT_EQ(result, std::vector<double>(result.size(), size));
           const Status sent =
               wait(communicator.broadcast({values.data(), 777, DataType::kFloat64, {}}, root));
           EXPECT_EQ(values, std::vector<double>(777, root + 1));
           return sent;
         })) {
      EXPECT_TRUE(status.ok()) << status.message();
    }
  }
}

TEST_P(Group, RunsManyOperationsAtOnce) {
  const int size = GetParam();
  constexpr int kOperations = 50;
  Ranks ranks = join_all(size);
  for (const Status& status : on_all(size, [&](int rank) {
         std::vector<std::vector<int64_t>> values;
         std::vector<Work> works;
         for (int i = 0; i < kOperations; ++i) {
           values.emplace_back(static_cast<size_t>(i * i * 10), rank + i);
         }
         for (auto& each : values) {
           MutableBuffer buffer{
               each.data(), static_cast<int64_t>(each.size()), DataType::kInt64, {}};
           auto work = ranks[static_cast<size_t>(rank)]->all_reduce(buffer, buffer, ReduceOp::kMin);
           if (!work.ok()) return work.status();
           works.push_back(*work);
         }
         for (auto work = works.rbegin(); work != works.rend(); ++work) {
           const Status ended = work->wait();
           if (!ended.ok()) return ended;
         }
         for (int i = 0; i < kOperations; ++i) {
           EXPECT_EQ(values[static_cast<size_t>(i)],
                     std::vector<int64_t>(static_cast<size_t>(i * i * 10), i));
         }
         return Status();
       })) {
    EXPECT_TRUE(status.ok()) << status.message();
  }
}

INSTANTIATE_TEST_SUITE_P(OfRanks, Group, testing::Values(1, 2, 3, 5));

TEST(Communicator, SaysWhatItIs) {
  Ranks ranks = join_all(2);
  EXPECT_EQ(ranks[1]->rank(), 1);
  EXPECT_EQ(ranks[1]->size(), 2);
  EXPECT_NE(ranks[0]->describe().find("\"transports\":[\"shm\"]"), std::string::npos)
      << ranks[0]->describe();
  EXPECT_GT(ranks[0]->memory_usage().segments, 0u);
  EXPECT_LE(ranks[0]->memory_usage().segments, 512u * 1024);
}

TEST(Communicator, AClosedOneTakesNothingAndPeersLearn) {
  Ranks ranks = join_all(2);
  EXPECT_TRUE(ranks[1]->close().ok());
  EXPECT_TRUE(ranks[1]->close().ok());
  EXPECT_EQ(ranks[1]->barrier().status().code(), StatusCode::kClosed);
  const Status status = wait(ranks[0]->barrier());
  EXPECT_EQ(status.code(), StatusCode::kPeerLost);
  EXPECT_NE(status.message().find("rank 1"), std::string::npos) << status.message();
}

TEST(Communicator, ASilentPeerIsNamedAndTheGroupEnds) {
  Ranks ranks = join_all(3);
  OperationOptions quick;
  quick.timeout_ms = 100;
  const auto statuses = on_all(3, [&](int rank) {
    return rank == 2 ? Status() : wait(ranks[static_cast<size_t>(rank)]->barrier(quick));
  });
  // Whichever of the two is late first tells the other.
  for (int rank : {0, 1}) {
    const Status& status = statuses[static_cast<size_t>(rank)];
    EXPECT_EQ(status.code(), StatusCode::kTimeout) << status.message();
    EXPECT_NE(status.message().find("rank 2"), std::string::npos) << status.message();
  }
  EXPECT_EQ(wait(ranks[0]->barrier()).code(), StatusCode::kTimeout);
}

TEST(Communicator, DifferentCallsAreAMismatchOnBothRanks) {
  Ranks ranks = join_all(2);
  const auto statuses = on_all(2, [&](int rank) {
    std::vector<float> values(16);
    MutableBuffer buffer{values.data(), rank == 0 ? 16 : 8, DataType::kFloat32, {}};
    return wait(ranks[static_cast<size_t>(rank)]->all_reduce(buffer, buffer, ReduceOp::kSum));
  });
  for (const Status& status : statuses) {
    EXPECT_EQ(status.code(), StatusCode::kMismatch) << status.message();
  }
}

TEST(Communicator, AReductionToOneRankKeepsToItsBufferSize) {
  constexpr int64_t kCount = 1'000'003;
  constexpr size_t kBufferSize = size_t{1} << 20;
  auto store = std::make_shared<bootstrap::MemoryStore>();
  for (const Status& status : on_all(3, [&](int rank) {
         CommunicatorOptions options = options_of(rank, 3, store);
         options.buffer_size = kBufferSize;
         auto made = Communicator::create(options);
         if (!made.ok()) return made.status();
         std::vector<double> values(kCount);
         std::iota(values.begin(), values.end(), rank);
         std::vector<double> sums(rank == 1 ? kCount : 0);
         const auto size = static_cast<int64_t>(sums.size());
         const Status reduced =
             wait((*made)->reduce({values.data(), kCount, DataType::kFloat64, {}},
                                  {sums.data(), size, DataType::kFloat64, {}}, ReduceOp::kSum, 1));
         for (int64_t i = 0; i < size; ++i) {
           if (sums[static_cast<size_t>(i)] != static_cast<double>(3 * i + 3)) {
             return Status(StatusCode::kSystem, "wrong sum");
           }
         }
         // All ranks share this process's staging.
         EXPECT_LE((*made)->memory_usage().staging, 3 * kBufferSize);
         const Status met = wait((*made)->barrier());
         return reduced.ok() ? met : reduced;
       })) {
    EXPECT_TRUE(status.ok()) << status.message();
  }
}

TEST(Communicator, JoinsAgainOnTheSameStore) {
  auto store = std::make_shared<bootstrap::MemoryStore>();
  for (int round = 0; round < 3; ++round) {
    for (const Status& status : on_all(2, [&](int rank) {
           auto made = Communicator::create(options_of(rank, 2, store));
           return made.ok() ? wait((*made)->barrier()) : made.status();
         })) {
      EXPECT_TRUE(status.ok()) << status.message();
    }
  }
}

TEST(Communicator, RefusesAForkedChild) {
  Ranks ranks = join_all(2);
  Result<Work> under_way = ranks[0]->barrier();
  ASSERT_TRUE(under_way.ok());
  const pid_t child = fork();
  if (child == 0) {
    bool refused = ranks[0]->barrier().status().code() == StatusCode::kClosed;
    refused = refused && !under_way->done();
    refused = refused && under_way->wait_for(60'000).code() == StatusCode::kClosed;
    refused = refused && under_way->wait().code() == StatusCode::kClosed;
    _exit(refused ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(wait(ranks[1]->barrier()).ok());
  EXPECT_TRUE(under_way->wait().ok());
  EXPECT_TRUE(
      on_all(2, [&](int rank) { return wait(ranks[static_cast<size_t>(rank)]->barrier()); })[0]
          .ok());
}

TEST(Communicator, LastWorkMayBeDroppedInAForkedChild) {
  Ranks ranks = join_all(1);
  Result<Work> last = ranks[0]->barrier();
  ASSERT_TRUE(last.ok());
  EXPECT_TRUE(last->wait().ok());
  ranks.clear();
  const pid_t child = fork();
  if (child == 0) {
    *last = Work();
    _exit(0);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST(Communicator, RefusesWhatCannotBe) {
  auto store = std::make_shared<bootstrap::MemoryStore>();
  EXPECT_EQ(Communicator::create(options_of(2, 2, store)).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(Communicator::create(options_of(-1, 2, store)).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(Communicator::create(options_of(0, 0, store)).status().code(),
            StatusCode::kInvalidArgument);
}

MutableBuffer of(std::vector<float>& values) {
  return {values.data(), static_cast<int64_t>(values.size()), DataType::kFloat32, {}};
}

TEST(Mismatch, AllRanksGetOneErrorWithBothCalls) {
  Ranks ranks = join_all(3);
  const std::vector<Status> statuses = on_all(3, [&](int rank) {
    std::vector<float> values(rank == 1 ? 8 : 4);
    return wait(
        ranks[static_cast<size_t>(rank)]->all_reduce(of(values), of(values), ReduceOp::kSum));
  });
  for (int rank = 0; rank < 3; ++rank) {
    const Status& status = statuses[static_cast<size_t>(rank)];
    EXPECT_EQ(status.code(), StatusCode::kMismatch) << status.message();
    EXPECT_EQ(status.message(), statuses[0].message());
    EXPECT_NE(status.message().find("rank 1 called all_reduce(float32, 8 elements, sum)"),
              std::string::npos)
        << status.message();
    EXPECT_NE(status.message().find(" called all_reduce(float32, 4 elements, sum)"),
              std::string::npos)
        << status.message();
  }
}

TEST(Mismatch, WhoseCallHadEndedWellHearsOfItNext) {
  Ranks ranks = join_all(2);
  std::vector<float> values(4);
  Result<Work> sent = ranks[0]->broadcast(of(values), 0);  // eager: it needs no word of rank 1
  EXPECT_EQ(wait(ranks[1]->barrier()).code(), StatusCode::kMismatch);
  ASSERT_TRUE(sent.ok());
  [[maybe_unused]] const Status first = sent->wait();
  const Status next = wait(ranks[0]->barrier());
  EXPECT_EQ(next.code(), StatusCode::kMismatch);
  EXPECT_NE(next.message().find("broadcast(float32, 4 elements, root 0)"), std::string::npos)
      << next.message();
}

TEST(Abort, EndsEveryWaitOnEveryRank) {
  Ranks ranks = join_all(3);
  std::vector<std::thread> waiting;
  std::vector<Status> statuses(3);
  for (size_t rank : {0, 1}) {
    waiting.emplace_back([&, rank] { statuses[rank] = wait(ranks[rank]->barrier()); });
  }
  ASSERT_TRUE(ranks[2]->abort("the loss is not a number").ok());
  for (std::thread& thread : waiting) thread.join();
  statuses[2] = wait(ranks[2]->barrier());
  for (const Status& status : statuses) {
    EXPECT_EQ(status.code(), StatusCode::kAborted);
    EXPECT_EQ(status.message(), "rank 2 called abort(): the loss is not a number");
  }
}

TEST(Abort, IsReturnedByCloseWhereNoWorkHasToldIt) {
  Ranks ranks = join_all(2);
  ASSERT_TRUE(ranks[0]->abort().ok());
  while (ranks[1]->status().ok()) std::this_thread::yield();
  EXPECT_EQ(ranks[1]->close().code(), StatusCode::kAborted);
  EXPECT_TRUE(ranks[1]->close().ok()) << "once";
}

TEST(Shrink, SurvivorsGoOnWithoutRank0) {
  Ranks ranks = join_all(4);
  ranks[0].reset();
  ranks[2].reset();
  Ranks shrunk(4);
  for (const Status& status : on_all(4, [&](int rank) {
         if (rank % 2 == 0) return Status();
         auto made = ranks[static_cast<size_t>(rank)]->shrink();
         if (!made.ok()) return made.status();
         std::vector<float> values(1000, static_cast<float>(rank));
         const Status reduced = wait((*made)->all_reduce(of(values), of(values), ReduceOp::kSum));
         EXPECT_EQ(values, std::vector<float>(1000, 4));
         shrunk[static_cast<size_t>(rank)] = std::move(*made);
         return reduced;
       })) {
    EXPECT_TRUE(status.ok()) << status.message();
  }
  EXPECT_EQ(shrunk[1]->rank(), 0);
  EXPECT_EQ(shrunk[3]->rank(), 1);
  EXPECT_EQ(shrunk[3]->size(), 2);
  EXPECT_NE(shrunk[3]->describe().find("\"epoch\":2"), std::string::npos) << shrunk[3]->describe();
  EXPECT_EQ(wait(ranks[1]->barrier()).code(), StatusCode::kAborted) << "the old group has ended";
}

TEST(Shrink, LeavesNothingToTellToTheOldGroup) {
  Ranks ranks = join_all(2);
  for (const Status& status : on_all(2, [&](int rank) {
         auto& old = ranks[static_cast<size_t>(rank)];
         auto made = old->shrink();
         return made.ok() ? old->close() : made.status();
       })) {
    EXPECT_TRUE(status.ok()) << status.message();
  }
}

TEST(Shrink, OneAloneGoesOn) {
  Ranks ranks = join_all(2);
  ranks[0].reset();
  auto shrunk = ranks[1]->shrink();
  ASSERT_TRUE(shrunk.ok()) << shrunk.status().message();
  EXPECT_EQ((*shrunk)->size(), 1);
  EXPECT_TRUE(wait((*shrunk)->barrier()).ok());
}

TEST(Shrink, WhoDoesNotComeIsNamed) {
  Ranks ranks = join_all(3);
  const std::vector<Status> statuses = on_all(3, [&](int rank) {
    if (rank == 1) return Status();
    return ranks[static_cast<size_t>(rank)]->shrink(/*timeout_ms=*/3000).status();
  });
  EXPECT_EQ(statuses[0].code(), StatusCode::kTimeout);
  EXPECT_EQ(statuses[2].code(), StatusCode::kTimeout);
  EXPECT_NE(statuses[0].message().find("rank 1 did not come to shrink()"), std::string::npos)
      << statuses[0].message();
}

}  // namespace
}  // namespace ciuic
