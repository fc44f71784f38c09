// SPDX-License-Identifier: Apache-2.0
// orphan_mismatch_test.cc: rank 0 has done its part and is gone in good order, with the hub of the
// control plane; then another rank calls otherwise. Each of the two waits for what the other's call
// does not send, so they have to find out between themselves.

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <tuple>

#include "rank_processes.h"

namespace ciuic::fault {
namespace {

constexpr int kSize = 3;
constexpr int64_t kTimeoutMs = 60'000;
constexpr int64_t kCount = 16;

// Name, what rank 2 calls where the others call a reduce of kCount elements to rank 1, its count;
// transport.
struct Other {
  const char* name;
  const char* operation;
  int64_t count;
};
using Case = std::tuple<Other, std::string>;

void be_rank(int rank, const Teller& teller, const Case& of, const std::string& directory) {
  const auto& [other, transport] = of;
  ::setenv("CIUIC_TRANSPORT", transport.c_str(), 1);
  auto communicator = join(directory, rank, kSize, kTimeoutMs);
  Status status = run(*communicator, "barrier", 0);
  if (!status.ok()) ::_exit(6);
  if (rank == 2) {
    teller.hear();
    status = run(*communicator, other.operation, other.count);
  } else {
    status = run(*communicator, "reduce", kCount);
  }
  communicator.reset();
  teller.say(std::to_string(static_cast<int>(status.code())) + " " + status.message());
}

class OrphanMismatches : public testing::TestWithParam<Case> {};

TEST_P(OrphanMismatches, AreFoundByTheTwoThatDiffer) {
  const Other& other = std::get<0>(GetParam());
  const Directory directory;
  RankProcesses ranks(kSize, [&](int rank, const Teller& teller) {
    be_rank(rank, teller, GetParam(), directory.path());
  });
  EXPECT_EQ(ranks.hear(0), "0 ");
  ASSERT_EQ(ranks.exit_status(0), 0);
  ranks.say(2, "call");
  const std::string code = std::to_string(static_cast<int>(StatusCode::kMismatch)) + " ";
  for (const int rank : {1, 2}) {
    const std::string end = ranks.hear(rank);
    EXPECT_EQ(end.substr(0, code.size()), code) << end;
    EXPECT_NE(end.find("on rank 1 and rank 2"), std::string::npos) << end;
    EXPECT_NE(end.find("rank 1 called reduce(float32, " + std::to_string(kCount) + " elements"),
              std::string::npos)
        << end;
    EXPECT_NE(end.find("rank 2 called " + std::string(other.operation)), std::string::npos) << end;
  }
}

std::string name_of_case(const testing::TestParamInfo<Case>& info) {
  const auto& [other, transport] = info.param;
  return std::string(other.name) + "_" + transport;
}

INSTANTIATE_TEST_SUITE_P(All, OrphanMismatches,
                         testing::Combine(testing::Values(Other{"size", "reduce", 5'000},
                                                          Other{"operation", "broadcast", kCount}),
                                          testing::Values("shm", "tcp")),
                         name_of_case);

}  // namespace
}  // namespace ciuic::fault
