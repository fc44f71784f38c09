// SPDX-License-Identifier: Apache-2.0
// mismatch_test.cc: one rank calls otherwise than the rest, in each way, for each operation, on
// each transport. Every rank ends with the same error, which names the ranks and their calls.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "bootstrap/memory_store.h"
#include "ciuic/communicator.h"

namespace ciuic::fault {
namespace {

constexpr int kSize = 3;

struct Planned {
  std::string operation;
  int64_t count = 16;
  DataType dtype = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  int root = 1;
};

Status run(Communicator& communicator, const Planned& call) {
  const auto bytes = static_cast<size_t>(call.count) * size_of(call.dtype);
  std::vector<std::byte> input(bytes * kSize);
  std::vector<std::byte> output(bytes * kSize);
  const MutableBuffer in{input.data(), call.count, call.dtype, {}};
  const MutableBuffer out{output.data(), call.count, call.dtype, {}};
  const MutableBuffer all_in{input.data(), call.count * kSize, call.dtype, {}};
  const MutableBuffer all_out{output.data(), call.count * kSize, call.dtype, {}};
  Result<Work> work = Status(StatusCode::kInvalidArgument, "no operation " + call.operation);
  if (call.operation == "all_reduce") work = communicator.all_reduce(in, out, call.op);
  if (call.operation == "reduce") work = communicator.reduce(in, out, call.op, call.root);
  if (call.operation == "broadcast") work = communicator.broadcast(in, call.root);
  if (call.operation == "all_gather") work = communicator.all_gather(in, all_out);
  if (call.operation == "reduce_scatter") {
    work = communicator.reduce_scatter(all_in, out, call.op);
  }
  if (call.operation == "all_to_all") work = communicator.all_to_all(all_in, all_out);
  if (call.operation == "gather") work = communicator.gather(in, all_out, call.root);
  if (call.operation == "scatter") work = communicator.scatter(all_in, out, call.root);
  if (call.operation == "barrier") work = communicator.barrier();
  return work.ok() ? work->wait() : work.status();
}

// What differs, operation, transport, the rank that calls otherwise, count.
using Case = std::tuple<std::string, std::string, std::string, int, int64_t>;

bool makes_sense(const Case& of) {
  const auto& [what, operation, transport, rank, count] = of;
  const bool reduces =
      operation == "all_reduce" || operation == "reduce" || operation == "reduce_scatter";
  const bool rooted = operation == "reduce" || operation == "broadcast" || operation == "gather" ||
                      operation == "scatter";
  if (operation == "barrier") return (what == "operation" || what == "order") && count == 16;
  return (what != "op" || reduces) && (what != "root" || rooted);
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const char* what : {"operation", "dtype", "count", "op", "root", "order"}) {
    for (const char* operation : {"all_reduce", "reduce", "broadcast", "all_gather", "barrier",
                                  "reduce_scatter", "all_to_all", "gather", "scatter"}) {
      for (const char* transport : {"shm", "tcp"}) {
        for (int rank : {0, 2}) {
          for (int64_t count : {16, 100'000}) {
            const Case of{what, operation, transport, rank, count};
            if (makes_sense(of)) all.push_back(of);
          }
        }
      }
    }
  }
  return all;
}

// Three calls: the first two are alike on all ranks but in their order, where that differs.
std::vector<Planned> calls_of(const Case& of, bool differs) {
  const auto& [what, operation, transport, rank, count] = of;
  Planned call{.operation = operation, .count = count};
  const Planned other{.operation = operation == "barrier" ? "all_reduce" : "barrier"};
  if (!differs) return {call, other, other};
  if (what == "order") return {other, call, other};
  if (what == "operation") call.operation = other.operation;
  if (what == "dtype") call.dtype = DataType::kInt32;
  if (what == "count") ++call.count;
  if (what == "op") call.op = ReduceOp::kMax;
  if (what == "root") call.root = 0;
  return {call, other, other};
}

// How the group ends on each rank, of which each makes its calls.
std::vector<Status> ends_of(const std::vector<std::vector<Planned>>& calls,
                            size_t buffer_size = 0) {
  auto store = std::make_shared<bootstrap::MemoryStore>();
  std::vector<Status> ends(kSize);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kSize; ++rank) {
    threads.emplace_back([&, rank] {
      CommunicatorOptions options;
      options.rank = rank;
      options.size = kSize;
      options.store = store;
      options.timeout_ms = 8'000;
      options.buffer_size = buffer_size;
      auto communicator = Communicator::create(options);
      Status status = communicator.status();
      for (const Planned& call : calls[static_cast<size_t>(rank)]) {
        if (status.ok()) status = run(**communicator, call);
      }
      // Whose own calls ended well hears of it at the next.
      while (status.ok()) status = run(**communicator, {.operation = "barrier"});
      ends[static_cast<size_t>(rank)] = status;
    });
  }
  for (std::thread& thread : threads) thread.join();
  return ends;
}

class Mismatches : public testing::TestWithParam<Case> {};

TEST_P(Mismatches, EndEveryRankWithOneErrorThatNamesBothCalls) {
  const int deviant = std::get<3>(GetParam());
  ::setenv("CIUIC_TRANSPORT", std::get<2>(GetParam()).c_str(), 1);
  std::vector<std::vector<Planned>> calls;
  for (int rank = 0; rank < kSize; ++rank) {
    calls.push_back(calls_of(GetParam(), rank == deviant));
  }
  const std::vector<Status> ends = ends_of(calls);
  for (const Status& end : ends) {
    EXPECT_EQ(end.code(), StatusCode::kMismatch) << end.message();
    EXPECT_EQ(end.message(), ends[0].message());
  }
  const std::string& text = ends[0].message();
  EXPECT_NE(text.find("rank " + std::to_string(deviant) + " called"), std::string::npos) << text;
  const size_t first = text.find(" called ");
  EXPECT_NE(text.find(" called ", first + 1), std::string::npos) << "one call alone: " << text;
}

// A reduction that is done in parts is still one call: as many smaller ones are none the same.
TEST(MismatchOfParts, IsOneOfTheWholeCalls) {
  ::unsetenv("CIUIC_TRANSPORT");
  constexpr size_t kBufferSize = 512 * 1024;
  constexpr int64_t kPart = 16 * 1024;  // elements, of which this buffer size makes a part
  const Planned whole{.operation = "reduce", .count = 2 * kPart};
  const Planned half{.operation = "reduce", .count = kPart};
  for (const Status& end : ends_of({{whole}, {whole}, {half, half}}, kBufferSize)) {
    EXPECT_EQ(end.code(), StatusCode::kMismatch) << end.message();
    EXPECT_NE(end.message().find("32768 elements"), std::string::npos) << end.message();
    EXPECT_NE(end.message().find("16384 elements"), std::string::npos) << end.message();
  }
}

std::string name_of_case(const testing::TestParamInfo<Case>& info) {
  const auto& [what, operation, transport, rank, count] = info.param;
  return what + "_" + operation + "_" + transport + "_" + std::to_string(rank) + "_" +
         std::to_string(count);
}

INSTANTIATE_TEST_SUITE_P(All, Mismatches, testing::ValuesIn(cases()), name_of_case);

}  // namespace
}  // namespace ciuic::fault
