// SPDX-License-Identifier: Apache-2.0
// faults_test.cc: a rank dies, does not come, or calls something else: every rank's Works end with
// the same error, which names it, and no stream stays held.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <thread>

#include "gpu_rank.h"
#include "values.h"

namespace ciuic::nccl_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr DataType kFloat = DataType::kFloat32;
constexpr int64_t kLateMs = 500;

MutableBuffer buffer_of(GpuRank& gpu, int64_t count = 1000) {
  return {gpu.allocate(static_cast<size_t>(count) * 4), count, kFloat, gpu.device()};
}

Result<Work> sum(GpuRank& gpu, const MutableBuffer& buffer, int64_t timeout_ms = -1) {
  OperationOptions options = gpu.on_stream();
  options.timeout_ms = timeout_ms;
  return gpu.communicator().all_reduce(buffer, buffer, ReduceOp::kSum, options);
}

Status ended(Result<Work> work) { return work.ok() ? work->wait() : work.status(); }

// What comes after it in the program's stream never does.
void hold(GpuRank& gpu) {
  (void)gpu.fake().enqueue(gpu.stream().handle, [](void*) { ::pause(); }, nullptr);
}

std::string text_of(const Status& status) {
  return std::string(name_of(status.code())) + ": " + status.message();
}

Status meet(GpuRank& gpu) { return ended(gpu.communicator().barrier()); }

// "<code>: <message>" of the Work that fails, once nothing is held by it.
std::string end_of(GpuRank& gpu, Result<Work> work) {
  if (!work.ok()) return "returned " + text_of(work.status());
  const Status status = work->wait();
  if (gpu.cuda().stream_synchronize(gpu.stream().handle) != 0) return "the stream has an error";
  const Status later = ended(sum(gpu, buffer_of(gpu)));
  if (later.ok() || later.message() != status.message()) {
    return fmt::format("first {}, later {}", text_of(status), text_of(later));
  }
  return text_of(status);
}

// What all but `victim` say is the same.
void expect_all(const std::vector<std::string>& said, int victim,
                const testing::Matcher<const std::string&>& matcher) {
  std::string first;
  for (size_t rank = 0; rank < said.size(); ++rank) {
    if (static_cast<int>(rank) == victim) continue;
    EXPECT_THAT(said[rank], matcher) << "rank " << rank;
    if (first.empty()) first = said[rank];
    EXPECT_EQ(said[rank], first) << "rank " << rank;
  }
}

TEST(Faults, ADeathInAnOperationEndsItOnAllRanks) {
  const auto said = on_ranks(3, {}, [](GpuRank& gpu) -> std::string {
    const bool is_victim = gpu.options().rank == 2;
    if (is_victim) hold(gpu);
    Result<Work> work = sum(gpu, buffer_of(gpu));
    const Status ordered = work.ok() ? work->wait_on(gpu.stream()) : work.status();
    if (!ordered.ok()) return text_of(ordered);
    const Status met = meet(gpu);
    if (!met.ok()) return text_of(met);
    if (is_victim) ::kill(::getpid(), SIGKILL);
    return end_of(gpu, work);
  });
  EXPECT_THAT(said[2], HasSubstr("died"));
  expect_all(said, 2, AllOf(HasSubstr("peer_lost: "), HasSubstr("rank 2")));
}

TEST(Faults, ADeathBetweenOperationsEndsTheNext) {
  const auto said = on_ranks(3, {}, [](GpuRank& gpu) -> std::string {
    const Status first = ended(sum(gpu, buffer_of(gpu)));
    if (!first.ok()) return text_of(first);
    if (gpu.options().rank == 0) ::kill(::getpid(), SIGKILL);
    return end_of(gpu, sum(gpu, buffer_of(gpu)));
  });
  expect_all(said, 0, AllOf(HasSubstr("peer_lost: "), HasSubstr("rank 0")));
}

// The others may be through with it, and find the death in their first operation.
TEST(Faults, ADeathWhileNcclIsMadeIsNamedOnAllRanks) {
  RankOptions options;
  options.before_join = [](GpuRank& gpu) {
    if (gpu.options().rank != 1) return;
    std::thread([&gpu] {
      while (gpu.fake().calls("ncclCommInitRankConfig") == 0) ::usleep(100);
      ::kill(::getpid(), SIGKILL);
    }).detach();
  };
  const auto said = on_ranks(3, options, [](GpuRank& gpu) -> std::string {
    return end_of(gpu, sum(gpu, buffer_of(gpu)));
  });
  EXPECT_THAT(said[0], HasSubstr("rank 1"));
  EXPECT_THAT(said[2], HasSubstr("rank 1"));
}

TEST(Faults, ARankThatDoesNotComeIsNamedWhenTimeIsUp) {
  const auto said = on_ranks(3, {}, [](GpuRank& gpu) -> std::string {
    if (gpu.options().rank == 1) {  // waits for what the others find
      while (gpu.communicator().status().ok()) ::usleep(1000);
      return text_of(gpu.communicator().status());
    }
    return end_of(gpu, sum(gpu, buffer_of(gpu), kLateMs));
  });
  expect_all(said, -1, AllOf(HasSubstr("timeout: all_reduce"), HasSubstr("rank 1")));
}

// It is called everywhere, and stands still on the device of one rank.
TEST(Faults, AnOperationThatStandsStillOnAGpuEndsWhenTimeIsUp) {
  const auto said = on_ranks(2, {}, [](GpuRank& gpu) -> std::string {
    if (gpu.options().rank == 0) return end_of(gpu, sum(gpu, buffer_of(gpu), kLateMs));
    Gate gate(gpu);
    const Status status = ended(sum(gpu, buffer_of(gpu), kLateMs));
    gate.open();
    return text_of(status);
  });
  expect_all(said, -1, HasSubstr("timeout: all_reduce"));
}

TEST(Faults, CallsThatDifferAreNamedBeforeNcclIsCalled) {
  ::setenv("CIUIC_CHECK", "1", 1);
  const auto said = on_ranks(3, {}, [](GpuRank& gpu) -> std::string {
    const MutableBuffer buffer = buffer_of(gpu);
    const Status first = ended(sum(gpu, buffer));
    if (!first.ok()) return text_of(first);
    const int64_t calls = gpu.fake().calls("ncclAllReduce") + gpu.fake().calls("ncclBroadcast");
    Result<Work> work = gpu.options().rank == 1
                            ? gpu.communicator().broadcast(buffer, 0, gpu.on_stream())
                            : sum(gpu, buffer);
    const std::string end = end_of(gpu, work);
    const int64_t now = gpu.fake().calls("ncclAllReduce") + gpu.fake().calls("ncclBroadcast");
    return now == calls ? end : "NCCL was called: " + end;
  });
  ::unsetenv("CIUIC_CHECK");
  expect_all(said, -1,
             AllOf(HasSubstr("mismatch: "), HasSubstr(", sum)"), HasSubstr("broadcast(")));
}

// NCCL does not see it, and stands still; what the ranks have called is found when time is up.
TEST(Faults, CallsThatDifferAreNamedWhenTimeIsUp) {
  const auto said = on_ranks(2, {}, [](GpuRank& gpu) -> std::string {
    return end_of(gpu, sum(gpu, buffer_of(gpu, 10 + gpu.options().rank), kLateMs));
  });
  expect_all(said, -1,
             AllOf(HasSubstr("mismatch: "), HasSubstr("all_reduce(float32, 10 elements"),
                   HasSubstr("all_reduce(float32, 11 elements")));
}

TEST(Faults, AbortEndsWhatIsUnderWay) {
  const auto said = on_ranks(3, {}, [](GpuRank& gpu) -> std::string {
    std::optional<Gate> gate;
    if (gpu.options().rank == 2) gate.emplace(gpu);
    Result<Work> work = sum(gpu, buffer_of(gpu));
    const Status met = meet(gpu);
    if (!met.ok()) return text_of(met);
    if (gpu.options().rank == 0) (void)gpu.communicator().abort("enough");
    if (!gate) return end_of(gpu, work);
    const Status status = ended(work);
    gate->open();
    return text_of(status);
  });
  expect_all(said, -1, HasSubstr("aborted: rank 0 called abort(): enough"));
}

TEST(Faults, CloseEndsWhatIsUnderWay) {
  const auto said = on_ranks(2, {}, [](GpuRank& gpu) -> std::string {
    const std::string closed = gpu.options().directory + "/closed";
    std::optional<Gate> gate;
    if (gpu.options().rank == 1) gate.emplace(gpu);
    Result<Work> work = sum(gpu, buffer_of(gpu));
    const Status met = meet(gpu);
    if (!met.ok()) return text_of(met);
    if (gate) {
      while (!std::filesystem::exists(closed)) ::usleep(1000);
      gate->open();
    }
    (void)gpu.communicator().close();
    if (gate) return "";  // what had come before rank 0 left may be all that it needed
    std::ofstream(closed).put('1');
    const Status status = work.ok() ? work->status() : work.status();
    return status.code() == StatusCode::kAborted ? "" : text_of(status);
  });
  expect_well(said);
}

}  // namespace
}  // namespace ciuic::nccl_test
