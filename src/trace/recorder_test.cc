// SPDX-License-Identifier: Apache-2.0
// recorder_test.cc: what is written is read back; kills, wrap-around and many threads leave nothing
// that is half.

#include "trace/recorder.h"

#include <gmock/gmock.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "trace/parse.h"

namespace ciuic::trace {
namespace {

// Shared with forked children.
class SharedMemory {
 public:
  explicit SharedMemory(uint32_t events) : bytes_(bytes_for(events)) {
    data_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(data_, MAP_FAILED);
  }
  ~SharedMemory() { munmap(data_, bytes_); }
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  std::span<std::byte> span() { return {static_cast<std::byte*>(data_), bytes_}; }
  Header& header() { return *static_cast<Header*>(data_); }
  uint64_t written() {
    return std::atomic_ref<uint64_t>(header().next).load(std::memory_order_acquire);
  }
  Trace parsed() {
    auto trace = parse(span());
    EXPECT_TRUE(trace.ok()) << trace.status().message();
    return trace.ok() ? *trace : Trace();
  }

 private:
  size_t bytes_;
  void* data_;
};

std::shared_ptr<Recorder> recorder_on(std::span<std::byte> memory) {
  auto made = Recorder::create(memory, {.pid = static_cast<int>(getpid()),
                                        .start_ticks = 77,
                                        .launch_rank = 1,
                                        .launch_size = 4,
                                        .boot_id = "boot",
                                        .host = "node7",
                                        .library = "0.1"});
  EXPECT_TRUE(made.ok()) << made.status().message();
  return *made;
}

// All that an event says follows from its group and sequence, so that a mixture is seen.
Call call_of(uint32_t group, uint32_t sequence) {
  return {.operation = "all_reduce",
          .starts_at_once = true,
          .reduces = true,
          .dtype = DataType::kFloat32,
          .op = ReduceOp::kMax,
          .sequence = sequence,
          .fingerprint = sequence * 2654435761u + group,
          .count = static_cast<int64_t>(sequence) * 1000 + group,
          .bytes = uint64_t{sequence} * 4000 + group,
          .called_at = int64_t{sequence} * 10 + 1};
}

void expect_consistent(const Operation& operation) {
  if (!operation.is_known) return;
  const Call expected = call_of(operation.group, operation.sequence);
  EXPECT_EQ(operation.name, "all_reduce");
  EXPECT_EQ(operation.fingerprint, expected.fingerprint);
  EXPECT_EQ(operation.count, expected.count);
  EXPECT_EQ(operation.bytes, expected.bytes);
  EXPECT_EQ(operation.called_ns, expected.called_at);
}

// A rank's sends and receives have numbers of their own.
TEST(Recorder, MessagesAndOperationsOfOneNumberAreTwo) {
  SharedMemory memory(256);
  auto recorder = recorder_on(memory.span());
  GroupRecorder group = recorder->join({.name = "default", .id = 5, .rank = 2, .size = 3});
  group.called(call_of(1, 0));
  group.called({.operation = "recv",
                .starts_at_once = true,
                .is_message = true,
                .dtype = DataType::kInt64,
                .sequence = 0,
                .fingerprint = 9,
                .root = -1,
                .count = 4,
                .bytes = 32});
  group.message_ended(0, StatusCode::kTimeout);
  const std::vector<Operation> operations = memory.parsed().operations;
  ASSERT_EQ(operations.size(), 2u);
  EXPECT_FALSE(operations[0].is_message);
  EXPECT_FALSE(operations[0].has_ended);
  expect_consistent(operations[0]);
  EXPECT_TRUE(operations[1].is_message);
  EXPECT_EQ(operations[1].name, "recv");
  EXPECT_EQ(operations[1].root, -1);
  EXPECT_EQ(operations[1].fingerprint, 9u);
  EXPECT_TRUE(operations[1].has_ended);
  EXPECT_EQ(operations[1].status, StatusCode::kTimeout);
}

TEST(Recorder, WhatIsWrittenIsReadBack) {
  SharedMemory memory(256);
  auto recorder = recorder_on(memory.span());
  GroupRecorder group =
      recorder->join({.name = "default", .job = 5, .id = 6, .epoch = 7, .rank = 1, .size = 4});
  const uint8_t ring = group.name_index("ring");
  group.called({.operation = "all_reduce",
                .algorithm = ring,
                .starts_at_once = true,
                .reduces = true,
                .dtype = DataType::kBFloat16,
                .op = ReduceOp::kAvg,
                .sequence = 0,
                .fingerprint = 99,
                .count = 10,
                .bytes = 20});
  group.started(0);
  group.called({.operation = "broadcast", .sequence = 1, .root = 2, .count = 3});
  group.ended(0, StatusCode::kOk);
  group.started(1);
  group.failed({StatusCode::kPeerLost, "rank 3 is gone"});
  group.ended(1, StatusCode::kPeerLost);

  const Trace trace = memory.parsed();
  EXPECT_EQ(trace.process.host, "node7");
  EXPECT_EQ(trace.process.boot_id, "boot");
  EXPECT_EQ(trace.process.launch_rank, 1);
  EXPECT_EQ(trace.process.written_events, 1 + 1 + 6u);  // a clock, the join; no start of 0
  EXPECT_EQ(trace.process.torn_events, 0u);
  ASSERT_EQ(trace.groups.size(), 1u);
  EXPECT_EQ(trace.groups[0].name, "default");
  EXPECT_EQ(trace.groups[0].job, 5u);
  EXPECT_EQ(trace.groups[0].id, 6u);
  EXPECT_EQ(trace.groups[0].epoch, 7u);
  EXPECT_EQ(trace.groups[0].rank, 1);
  EXPECT_EQ(trace.groups[0].size, 4);
  EXPECT_TRUE(trace.groups[0].failed_ns.has_value());
  EXPECT_FALSE(trace.groups[0].closed_ns.has_value());
  EXPECT_EQ(trace.groups[0].status, StatusCode::kPeerLost);
  EXPECT_EQ(trace.groups[0].text, "rank 3 is gone");

  ASSERT_EQ(trace.operations.size(), 2u);
  const Operation& first = trace.operations[0];
  EXPECT_EQ(first.name, "all_reduce");
  EXPECT_EQ(first.algorithm, "ring");
  EXPECT_EQ(first.dtype, "bfloat16");
  EXPECT_EQ(first.op, "avg");
  EXPECT_EQ(first.root, -1);
  EXPECT_EQ(first.count, 10);
  EXPECT_EQ(first.bytes, 20u);
  EXPECT_EQ(first.fingerprint, 99u);
  EXPECT_EQ(first.called_ns, first.started_ns);
  EXPECT_TRUE(first.has_ended);
  EXPECT_EQ(first.status, StatusCode::kOk);
  EXPECT_GE(*first.ended_ns, *first.called_ns);
  const Operation& second = trace.operations[1];
  EXPECT_EQ(second.name, "broadcast");
  EXPECT_EQ(second.algorithm, "");
  EXPECT_EQ(second.op, "");
  EXPECT_EQ(second.root, 2);
  EXPECT_GE(*second.started_ns, *second.called_ns);
  EXPECT_EQ(second.status, StatusCode::kPeerLost);
}

TEST(Recorder, TimesAreThoseOfTheMonotonicClock) {
  SharedMemory memory(64);
  auto recorder = recorder_on(memory.span());
  GroupRecorder group = recorder->join({.name = "default"});
  const TimeNs before = now_ns();
  group.called({.operation = "barrier"});
  group.ended(0, StatusCode::kOk);
  const TimeNs after = now_ns();
  const Moment now = this_moment(clock_kind());
  const auto trace = parse(memory.span(), &now);
  ASSERT_TRUE(trace.ok());
  // Two moments, a few microseconds apart, give the pace: what lies between them is that exact.
  constexpr int64_t kSlack = 2000;
  EXPECT_GE(*trace->operations[0].called_ns, before - kSlack);
  EXPECT_LE(*trace->operations[0].ended_ns, after + kSlack);
  EXPECT_NEAR(static_cast<double>(trace->process.realtime_offset_ns),
              static_cast<double>(now.realtime_ns - now.monotonic_ns), 1e9);
}

TEST(Recorder, TheRingKeepsTheLastEvents) {
  SharedMemory memory(64);
  auto recorder = recorder_on(memory.span());
  GroupRecorder group = recorder->join({.name = "default"});
  for (uint32_t i = 0; i < 1000; ++i) {
    group.called(call_of(1, i));
    group.ended(i, StatusCode::kOk);
  }
  const Trace trace = memory.parsed();
  EXPECT_EQ(trace.process.torn_events, 0u);
  EXPECT_GT(trace.process.written_events, 2000u);
  ASSERT_GE(trace.operations.size(), 24u);
  EXPECT_EQ(trace.operations.back().sequence, 999u);
  for (const Operation& operation : trace.operations) expect_consistent(operation);
  for (size_t i = 1; i < trace.operations.size(); ++i) {
    EXPECT_EQ(trace.operations[i].sequence, trace.operations[i - 1].sequence + 1);
    EXPECT_TRUE(trace.operations[i].has_ended);
  }
}

TEST(Recorder, ABusyGroupDoesNotPushOutAQuietOne) {
  SharedMemory memory(64);
  auto recorder = recorder_on(memory.span());
  GroupRecorder quiet = recorder->join({.name = "quiet"});
  GroupRecorder busy = recorder->join({.name = "busy"});
  for (uint32_t i = 0; i < 3; ++i) quiet.called(call_of(1, i));
  quiet.ended(0, StatusCode::kOk);
  quiet.ended(1, StatusCode::kTimeout);
  for (uint32_t i = 0; i < 1000; ++i) {
    busy.called(call_of(2, i));
    busy.ended(i, StatusCode::kOk);
  }
  std::vector<Operation> of_quiet;
  for (const Operation& operation : memory.parsed().operations) {
    if (operation.group == 1) of_quiet.push_back(operation);
  }
  ASSERT_EQ(of_quiet.size(), 3u);
  for (const Operation& operation : of_quiet) expect_consistent(operation);
  EXPECT_TRUE(of_quiet[0].has_ended);
  EXPECT_EQ(of_quiet[1].status, StatusCode::kTimeout);
  EXPECT_FALSE(of_quiet[1].ended_ns.has_value());  // when, nobody knows any more
  EXPECT_FALSE(of_quiet[2].has_ended);
}

TEST(Recorder, SlotsOfClosedGroupsAreUsedAgain) {
  SharedMemory memory(64);
  auto recorder = recorder_on(memory.span());
  GroupRecorder first = recorder->join({.name = "first"});
  for (uint32_t i = 0; i < 3 * kGroups; ++i) {
    GroupRecorder group = recorder->join({.name = "passing"});
    EXPECT_TRUE(group.records());
    group.closed();
    group.closed();
    group.called(call_of(1, 1));  // writes nothing
  }
  Trace trace = memory.parsed();
  EXPECT_EQ(trace.groups.size(), kGroups);
  EXPECT_EQ(trace.groups.front().name, "first");
  EXPECT_EQ(trace.groups.back().number, 1 + 3 * kGroups);
  EXPECT_TRUE(trace.operations.empty());

  std::vector<GroupRecorder> alive;
  for (uint32_t i = 0; i < kGroups; ++i) alive.push_back(recorder->join({.name = "alive"}));
  EXPECT_FALSE(alive.back().records());  // the first holds one
  alive.back().called(call_of(1, 1));
  EXPECT_EQ(memory.parsed().process.groups_lost, 1u);
}

TEST(Recorder, NamesThatDoNotFitAreLeftOut) {
  SharedMemory memory(64);
  auto recorder = recorder_on(memory.span());
  GroupRecorder group = recorder->join({.name = std::string(200, 'g')});
  std::vector<std::string> names;
  for (uint32_t i = 0; i <= kNames; ++i) names.push_back("operation " + std::to_string(i));
  for (uint32_t i = 0; i <= kNames; ++i) {
    group.called({.operation = names[i].c_str(), .sequence = i});
  }
  group.failed({StatusCode::kSystem, std::string(5000, 't')});
  group.failed({StatusCode::kTimeout, "a later one"});
  const Trace trace = memory.parsed();
  EXPECT_EQ(trace.operations.back().name, "");
  EXPECT_EQ(trace.operations[trace.operations.size() - 2].name, names[kNames - 1]);
  EXPECT_EQ(trace.groups[0].name, std::string(63, 'g'));
  EXPECT_EQ(trace.groups[0].text, std::string(311, 't'));
  EXPECT_EQ(trace.groups[0].status, StatusCode::kSystem);
}

TEST(Recorder, RefusesMemoryThatIsTooSmall) {
  std::vector<Event> memory(bytes_for(kLeastEvents) / sizeof(Event) - 1);
  EXPECT_EQ(Recorder::create(std::as_writable_bytes(std::span(memory)), {}).status().code(),
            StatusCode::kInvalidArgument);
}

TEST(Recorder, AFailureIsToldOnce) {
  SharedMemory memory(64);
  auto recorder = recorder_on(memory.span());
  int told = 0;
  recorder->on_failure([&told] { ++told; });
  GroupRecorder group = recorder->join({.name = "default"});
  group.failed({StatusCode::kTimeout, "late"});
  group.failed({StatusCode::kTimeout, "later"});
  EXPECT_EQ(told, 1);
}

// The child writes as fast as it can and is killed at any moment. Then all events are whole but at
// most the one that it was writing, and none is missing before it.
TEST(Recorder, NothingHalfIsLeftByAKill) {
  const auto seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (int round = 0; round < 40; ++round) {
    SharedMemory memory(256);
    const uint64_t until = 3 + random() % 2000;
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      auto recorder = recorder_on(memory.span());
      GroupRecorder group = recorder->join({.name = "default"});
      for (uint32_t i = 0;; ++i) {
        group.called(call_of(1, i));
        group.ended(i, StatusCode::kOk);
      }
    }
    while (memory.written() < until) sched_yield();
    ASSERT_EQ(kill(child, SIGKILL), 0);
    ASSERT_EQ(waitpid(child, nullptr, 0), child);
    const Trace trace = memory.parsed();
    EXPECT_LE(trace.process.torn_events, 1u);
    ASSERT_GE(trace.operations.size(), 1u);
    for (const Operation& operation : trace.operations) expect_consistent(operation);
    for (size_t i = 1; i < trace.operations.size(); ++i) {
      EXPECT_EQ(trace.operations[i].sequence, trace.operations[i - 1].sequence + 1);
      EXPECT_TRUE(trace.operations[i - 1].has_ended);
    }
  }
}

TEST(Recorder, ManyThreadsWriteWhileOthersRead) {
  SharedMemory memory(256);
  auto recorder = recorder_on(memory.span());
  constexpr uint32_t kThreads = 4;
  constexpr uint32_t kCalls = 3000;
  std::vector<GroupRecorder> groups;
  for (uint32_t i = 0; i < kThreads; ++i) groups.push_back(recorder->join({.name = "group"}));
  std::atomic<uint32_t> ready{0};
  std::vector<std::thread> threads;
  for (uint32_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      ready.fetch_add(1);
      for (uint32_t n = 0; n < kCalls; ++n) {
        groups[i].called(call_of(i + 1, n));
        groups[i].ended(n, StatusCode::kOk);
        if (n == kCalls / 2) {
          GroupRecorder passing = recorder->join({.name = "passing"});
          passing.failed({StatusCode::kAborted, "enough"});
          passing.closed();
        }
      }
    });
  }
  while (ready.load() < kThreads) sched_yield();
  for (int i = 0; i < 30; ++i) {
    const std::string copy = recorder->snapshot();
    const auto trace = parse(std::as_bytes(std::span(copy)));
    ASSERT_TRUE(trace.ok());
    for (const Operation& operation : trace->operations) {
      ASSERT_LE(operation.group, 2 * kThreads);
      expect_consistent(operation);
    }
  }
  for (std::thread& thread : threads) thread.join();
  const Trace trace = memory.parsed();
  EXPECT_GE(trace.process.written_events, kThreads * (2u * kCalls + 4));
  for (const Operation& operation : trace.operations) expect_consistent(operation);
  EXPECT_EQ(trace.groups.size(), 2 * kThreads);
}

}  // namespace
}  // namespace ciuic::trace
