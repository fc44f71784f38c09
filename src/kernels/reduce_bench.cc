// SPDX-License-Identifier: Apache-2.0
// reduce_bench.cc: bytes read per second by reduce(), for the shapes that the engine uses most.

#include <benchmark/benchmark.h>

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/reduce.h"

namespace ciuic::kernels {
namespace {

// Arguments: bytes of an operand, number of operands. The target is the first operand.
void run(benchmark::State& state, DataType dtype, ReduceOp op) {
  const auto bytes = static_cast<size_t>(state.range(0));
  const auto size = static_cast<size_t>(state.range(1));
  std::vector<std::vector<std::byte>> memory(size, std::vector<std::byte>(bytes + 64));
  std::vector<Operand> operands;
  for (const auto& buffer : memory) operands.push_back({buffer.data(), false});
  const Reduction reduction = {dtype, op, static_cast<int>(size)};
  const auto count = static_cast<int64_t>(bytes / size_of(dtype));
  for (auto _ : state) {
    reduce(reduction, operands, true, memory[0].data(), count);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(static_cast<int64_t>(bytes * size) * state.iterations());
  state.SetLabel(simd_target());
}

const int registered = [] {
  for (int number = 0; number < kDataTypes; ++number) {
    const auto dtype = static_cast<DataType>(number);
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kMin, ReduceOp::kProduct}) {
      if (!is_reducible(dtype, op)) continue;
      auto* bench = benchmark::RegisterBenchmark(
          (std::string(name_of(dtype)) + "/" + name_of(op)).c_str(), run, dtype, op);
      bench->Args({8, 2})->Args({1 << 14, 2})->Args({1 << 22, 2})->Args({1 << 14, 3});
      bench->Args({1 << 14, 8});
    }
  }
  return 0;
}();

}  // namespace
}  // namespace ciuic::kernels
