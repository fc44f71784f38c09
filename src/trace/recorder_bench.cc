// SPDX-License-Identifier: Apache-2.0
// recorder_bench.cc: what an event costs the thread that writes it.

#include <benchmark/benchmark.h>

#include <vector>

#include "trace/recorder.h"

namespace ciuic::trace {

static void operation(benchmark::State& state) {
  const size_t words = bytes_for(4096) / sizeof(Event);
  std::vector<Event> memory(words);
  auto recorder = Recorder::create(std::as_writable_bytes(std::span(memory)), {.pid = 1});
  GroupRecorder group = (*recorder)->join({.name = "default", .size = 2});
  Call call{.operation = "all_reduce",
            .starts_at_once = state.range(0) == 2,
            .count = 1024,
            .called_at = 1};
  for (auto _ : state) {
    group.called(call);
    group.started(call.sequence);
    group.ended(call.sequence++, StatusCode::kOk);
  }
  state.counters["events/operation"] = static_cast<double>(state.range(0));
}
BENCHMARK(operation)->Arg(2)->Arg(3);

static void clock_alone(benchmark::State& state) {
  const ClockKind kind = clock_kind();
  for (auto _ : state) benchmark::DoNotOptimize(read_ticks(kind));
}
BENCHMARK(clock_alone);

}  // namespace ciuic::trace
