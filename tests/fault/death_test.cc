// SPDX-License-Identifier: Apache-2.0
// death_test.cc: a rank is killed, stopped, exits, closes or does not come, in each phase of each
// operation, on each transport. Every other rank ends with the same error, which names it.

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <tuple>
#include <vector>

#include "rank_processes.h"

namespace ciuic::fault {
namespace {

constexpr int kSize = 4;
constexpr int64_t kTimeoutMs = 1500;        // where it is what ends the operation
constexpr int64_t kLongTimeoutMs = 60'000;  // where something else has to

// Fault, phase, operation, transport, victim.
using Case = std::tuple<std::string, std::string, std::string, std::string, int>;

std::string name_of_case(const testing::TestParamInfo<Case>& info) {
  const auto& [fault, phase, operation, transport, victim] = info.param;
  return fault + "_" + phase + "_" + operation + "_" + transport + "_" + std::to_string(victim);
}

struct End {
  int code = -1;
  int64_t at_ms = 0;
  int64_t waited_ms = 0;  // in the operation that ended so
  std::string message;
};

// "end <code> <time> <waited> <message>"
End parse_end(const std::string& line) {
  End end;
  char* rest = nullptr;
  if (line.rfind("end ", 0) != 0) return end;
  end.code = static_cast<int>(std::strtol(line.c_str() + 4, &rest, 10));
  end.at_ms = std::strtoll(rest, &rest, 10);
  end.waited_ms = std::strtoll(rest, &rest, 10);
  end.message = std::string(rest + 1);
  return end;
}

class Faults : public testing::TestWithParam<Case> {};

// What each rank does. The victim looks for its orders between operations.
void be_rank(int rank, const Teller& teller, const Case& of, const std::string& directory) {
  const auto& [fault, phase, operation, transport, victim] = of;
  ::setenv("CIUIC_TRANSPORT", transport.c_str(), 1);
  const bool by_time = fault == "stopped" || fault == "late";
  const int64_t timeout_ms = by_time ? kTimeoutMs : kLongTimeoutMs;
  auto communicator = join(directory, rank, kSize, timeout_ms);
  const int64_t count = 50'000;  // several chunks
  Status status;
  if (phase != "before") status = run(*communicator, operation, count);
  if (!status.ok()) ::_exit(6);
  teller.say("ready");
  const bool waits = phase != "during";
  if (waits && teller.hear() == "exit") ::_exit(0);
  int64_t called_ms = 0;
  for (int number = 0; status.ok(); ++number) {
    if (rank == victim && !waits && teller.has_word()) {
      const std::string order = teller.hear();
      if (order == "exit") ::_exit(0);
      if (order == "close") (void)communicator->close();
      if (order != "go") teller.hear();  // for ever
    }
    if (rank == victim && waits) {
      if (fault == "closed") (void)communicator->close();
      teller.say("gone");
      teller.hear();
    }
    called_ms = milliseconds();
    status = run(*communicator, operation, count);
    if (number == 2) teller.say("looping");
  }
  const int64_t end_ms = milliseconds();
  teller.say("end " + std::to_string(static_cast<int>(status.code())) + " " +
             std::to_string(end_ms) + " " + std::to_string(end_ms - called_ms) + " " +
             status.message());
  teller.hear();
}

void strike(RankProcesses& ranks, const Case& of) {
  const auto& [fault, phase, operation, transport, victim] = of;
  if (fault == "killed") ranks.signal(victim, SIGKILL);
  if (fault == "stopped") ranks.signal(victim, SIGSTOP);
  if (fault == "exited") ranks.say(victim, "exit");
  if (fault == "closed" || fault == "late") {
    ranks.say(victim, fault == "closed" ? "close" : "wait");
    if (phase != "during") {
      EXPECT_EQ(ranks.hear(victim), "gone");
    }
  }
}

TEST_P(Faults, EndEveryOtherRankWithOneErrorThatNamesTheRank) {
  const auto& [fault, phase, operation, transport, victim] = GetParam();
  const Directory directory;
  RankProcesses ranks(kSize, [&](int rank, const Teller& teller) {
    be_rank(rank, teller, GetParam(), directory.path());
  });
  for (int rank = 0; rank < kSize; ++rank) ASSERT_EQ(ranks.hear(rank), "ready");
  if (phase == "during") {
    for (int rank = 0; rank < kSize; ++rank) ASSERT_EQ(ranks.hear(rank), "looping");
  }
  const int64_t struck_ms = milliseconds();
  strike(ranks, GetParam());
  std::vector<End> ends;
  for (int rank = 0; rank < kSize; ++rank) {
    if (rank == victim) continue;
    if (phase != "during") ranks.say(rank, "go");
  }
  int64_t worst_ms = 0;
  int64_t longest_wait_ms = 0;
  for (int rank = 0; rank < kSize; ++rank) {
    if (rank == victim) continue;
    std::string line = ranks.hear(rank);
    if (line == "looping") line = ranks.hear(rank);
    const End end = parse_end(line);
    ASSERT_GE(end.code, 0) << "rank " << rank << " said: " << line;
    ends.push_back(end);
    worst_ms = std::max(worst_ms, end.at_ms - struck_ms);
    longest_wait_ms = std::max(longest_wait_ms, end.waited_ms);
  }
  const auto code = fault == "late" ? StatusCode::kTimeout : StatusCode::kPeerLost;
  for (const End& end : ends) {
    EXPECT_EQ(end.code, static_cast<int>(code)) << end.message;
    EXPECT_NE(end.message.find("rank " + std::to_string(victim)), std::string::npos) << end.message;
    EXPECT_EQ(end.message, ends[0].message);
  }
  // The deadline of whoever called first ends it for all.
  if (fault == "late") {
    EXPECT_GE(longest_wait_ms, kTimeoutMs) << "before the deadline";
  }
  RecordProperty("fault_to_error_ms", static_cast<int>(worst_ms));
  std::printf("fault to last error: %d ms (%s)\n", static_cast<int>(worst_ms), fault.c_str());
}

const auto kOperations =
    testing::Values("all_reduce", "reduce", "broadcast", "all_gather", "barrier", "reduce_scatter",
                    "all_to_all", "gather", "scatter", "ring");
const auto kTransports = testing::Values("shm", "tcp");
const auto kVictims = testing::Values(0, kSize - 1);

INSTANTIATE_TEST_SUITE_P(Known, Faults,
                         testing::Combine(testing::Values("killed", "exited", "closed"),
                                          testing::Values("before", "during", "between"),
                                          kOperations, kTransports, kVictims),
                         name_of_case);
INSTANTIATE_TEST_SUITE_P(BySilence, Faults,
                         testing::Combine(testing::Values("stopped", "late"),
                                          testing::Values("before", "during"),
                                          testing::Values("all_reduce", "broadcast", "barrier"),
                                          kTransports, kVictims),
                         name_of_case);
// Not late: who waits for one that waits cannot name the one that it waits for.
INSTANTIATE_TEST_SUITE_P(BySilenceInMessages, Faults,
                         testing::Combine(testing::Values("stopped"),
                                          testing::Values("before", "during"),
                                          testing::Values("ring"), kTransports, kVictims),
                         name_of_case);

class Survivors : public testing::TestWithParam<std::tuple<std::string, int>> {};

// Works until the group ends, and goes on in the survivors' group.
void survive(int rank, const Teller& teller, const std::string& transport,
             const std::string& directory, int64_t timeout_ms) {
  ::setenv("CIUIC_TRANSPORT", transport.c_str(), 1);
  auto communicator = join(directory, rank, kSize, timeout_ms);
  teller.say("ready");
  Status status;
  while (status.ok()) status = run(*communicator, "all_reduce", 1000);
  auto shrunk = communicator->shrink(kLongTimeoutMs);
  if (!shrunk.ok()) {
    teller.say(shrunk.status().message());
    return;
  }
  communicator.reset();
  float sum = 1;
  const MutableBuffer one{&sum, 1, DataType::kFloat32, {}};
  Result<Work> work = (*shrunk)->all_reduce(one, one, ReduceOp::kSum);
  status = work.ok() ? work->wait() : work.status();
  teller.say(status.ok() ? "sum " + std::to_string(static_cast<int>(sum)) : status.message());
  teller.hear();
}

TEST_P(Survivors, GoOnInAGroupOfTheirOwn) {
  const auto& [transport, victim] = GetParam();
  const Directory directory;
  RankProcesses ranks(kSize, [&](int rank, const Teller& teller) {
    survive(rank, teller, transport, directory.path(), kLongTimeoutMs);
  });
  for (int rank = 0; rank < kSize; ++rank) ASSERT_EQ(ranks.hear(rank), "ready");
  ranks.signal(victim, SIGKILL);
  for (int rank = 0; rank < kSize; ++rank) {
    if (rank == victim) continue;
    EXPECT_EQ(ranks.hear(rank), "sum 3");
  }
}

TEST_P(Survivors, AreNotJoinedByWhomTheyHaveGivenUp) {
  const auto& [transport, victim] = GetParam();
  const Directory directory;
  RankProcesses ranks(kSize, [&](int rank, const Teller& teller) {
    survive(rank, teller, transport, directory.path(), kTimeoutMs);
  });
  for (int rank = 0; rank < kSize; ++rank) ASSERT_EQ(ranks.hear(rank), "ready");
  ranks.signal(victim, SIGSTOP);
  for (int rank = 0; rank < kSize; ++rank) {
    if (rank == victim) continue;
    EXPECT_EQ(ranks.hear(rank), "sum 3");
  }
  ranks.signal(victim, SIGCONT);
  const std::string refused = "the other ranks have given rank " + std::to_string(victim) + " up";
  EXPECT_EQ(ranks.hear(victim).rfind(refused, 0), 0U);
}

std::string name_of_survivors(const testing::TestParamInfo<std::tuple<std::string, int>>& info) {
  return std::get<0>(info.param) + "_" + std::to_string(std::get<1>(info.param));
}

INSTANTIATE_TEST_SUITE_P(OfEachVictim, Survivors, testing::Combine(kTransports, kVictims),
                         name_of_survivors);

}  // namespace
}  // namespace ciuic::fault
