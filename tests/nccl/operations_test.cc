// SPDX-License-Identifier: Apache-2.0
// operations_test.cc: every operation, on memory that kernels are still writing when it is called,
// against a reference in double precision.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "gpu_rank.h"
#include "values.h"

namespace ciuic::nccl_test {
namespace {

enum class Wait { kHost, kStream };

// One call of all ranks, its inputs and what is to come out of it.
struct Case {
  DataType dtype = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  int64_t count = 0;
  bool in_place = false;
};

std::vector<double> slice(const std::vector<double>& all, int64_t begin, int64_t count,
                          DataType dtype) {
  const auto parts = static_cast<int64_t>(parts_of(dtype));
  return {all.begin() + begin * parts, all.begin() + (begin + count) * parts};
}

void append(std::vector<double>* to, const std::vector<double>& from) {
  to->insert(to->end(), from.begin(), from.end());
}

class Caller {
 public:
  Caller(GpuRank& gpu, Case of)
      : gpu_(gpu), of_(of), rank_(gpu.options().rank), size_(gpu.options().size) {}

  // "" or what was wrong.
  std::string run(const std::string& operation, Wait wait);

 private:
  std::vector<double> values(int rank, int64_t count) const {
    return input_of(rank, count, of_.dtype);
  }
  std::vector<double> sums(int64_t count) const {
    std::vector<std::vector<double>> inputs;
    for (int rank = 0; rank < size_; ++rank) inputs.push_back(values(rank, count));
    return reduced(inputs, of_.dtype, of_.op);
  }
  int64_t uneven(int rank) const { return rank == 1 ? 0 : of_.count + rank; }
  std::vector<int64_t> counts() const {
    std::vector<int64_t> all;
    for (int rank = 0; rank < size_; ++rank) all.push_back(uneven(rank));
    return all;
  }
  int64_t before(int rank) const {
    int64_t begin = 0;
    for (int each = 0; each < rank; ++each) begin += uneven(each);
    return begin;
  }
  // What rank `from` has for rank `to` in an all_to_all_v.
  int64_t between(int from, int to) const { return (from * 3 + to) % 4 * of_.count / 2; }

  void* put(const std::vector<double>& input);
  MutableBuffer output(int64_t count);
  ConstBuffer input(const std::vector<double>& all);
  bool make(const std::string& operation);
  bool make_reduction(const std::string& operation);
  bool make_gather(const std::string& operation);
  bool make_scatter(const std::string& operation);
  void make_all_to_all_v();
  std::string compare(const Bytes& found) const;

  GpuRank& gpu_;
  const Case of_;
  const int rank_;
  const int size_;
  std::vector<Call> calls_;
  void* in_place_ = nullptr;
  MutableBuffer result_;  // nothing is looked at where it has no memory
  std::vector<double> expected_;
};

// Written by a kernel that has not run yet.
void* Caller::put(const std::vector<double>& input) {
  const Bytes bytes = encode(of_.dtype, input);
  void* memory = gpu_.allocate(bytes.size());
  gpu_.write(memory, bytes, 400);
  return memory;
}

ConstBuffer Caller::input(const std::vector<double>& all) {
  void* memory = put(all);
  in_place_ = memory;
  return {memory, static_cast<int64_t>(all.size() / parts_of(of_.dtype)), of_.dtype, gpu_.device()};
}

// A kernel of before still writes there, too.
MutableBuffer Caller::output(int64_t count) {
  const size_t bytes = static_cast<size_t>(count) * size_of(of_.dtype);
  void* memory = gpu_.allocate(bytes);
  gpu_.write(memory, Bytes(bytes, std::byte{0x5A}), 100);
  result_ = {memory, count, of_.dtype, gpu_.device()};
  return result_;
}

bool Caller::make_reduction(const std::string& operation) {
  const int64_t n = of_.count;
  const bool is_root = rank_ == 1;
  if (operation == "all_reduce") {
    const ConstBuffer in = input(values(rank_, n));
    expected_ = sums(n);
    result_ = of_.in_place ? MutableBuffer{in_place_, n, of_.dtype, gpu_.device()} : output(n);
    calls_ = {Call::all_reduce(in, result_, of_.op)};
  } else if (operation == "reduce") {
    const ConstBuffer in = input(values(rank_, n));
    if (is_root) expected_ = sums(n);
    calls_ = {Call::reduce(in, is_root ? output(n) : MutableBuffer{}, of_.op, 1)};
  } else if (operation == "reduce_scatter") {
    const ConstBuffer in = input(values(rank_, n * size_));
    expected_ = slice(sums(n * size_), n * rank_, n, of_.dtype);
    calls_ = {Call::reduce_scatter(in, output(n), of_.op)};
  } else if (operation == "reduce_scatter_v") {
    const ConstBuffer in = input(values(rank_, before(size_)));
    expected_ = slice(sums(before(size_)), before(rank_), uneven(rank_), of_.dtype);
    calls_ = {Call::reduce_scatter_v(in, counts(), output(uneven(rank_)), of_.op)};
  } else {
    return false;
  }
  return true;
}

bool Caller::make_gather(const std::string& operation) {
  const int64_t n = of_.count;
  const bool is_root = rank_ == 1;
  const bool is_uneven = operation.ends_with("_v");
  const auto of_rank = [&](int rank) { return is_uneven ? uneven(rank) : n; };
  if (!operation.starts_with("all_gather") && !operation.starts_with("gather")) return false;
  const bool gets = is_root || operation.starts_with("all");
  for (int rank = 0; gets && rank < size_; ++rank) append(&expected_, values(rank, of_rank(rank)));
  const ConstBuffer in = input(values(rank_, of_rank(rank_)));
  const MutableBuffer out = gets ? output(is_uneven ? before(size_) : n * size_) : MutableBuffer{};
  if (operation == "all_gather") calls_ = {Call::all_gather(in, out)};
  if (operation == "all_gather_v") calls_ = {Call::all_gather_v(in, out, counts())};
  if (operation == "gather") calls_ = {Call::gather(in, out, 1)};
  if (operation == "gather_v") {
    calls_ = {Call::gather_v(in, out, is_root ? counts() : std::vector<int64_t>{}, 1)};
  }
  return true;
}

bool Caller::make_scatter(const std::string& operation) {
  const int64_t n = of_.count;
  const bool is_root = rank_ == 1;
  if (operation == "scatter") {
    const ConstBuffer in = is_root ? input(values(1, n * size_)) : ConstBuffer{};
    expected_ = slice(values(1, n * size_), n * rank_, n, of_.dtype);
    calls_ = {Call::scatter(in, output(n), 1)};
  } else if (operation == "scatter_v") {
    const ConstBuffer in = is_root ? input(values(1, before(size_))) : ConstBuffer{};
    expected_ = slice(values(1, before(size_)), before(rank_), uneven(rank_), of_.dtype);
    calls_ = {
        Call::scatter_v(in, is_root ? counts() : std::vector<int64_t>{}, output(uneven(rank_)), 1)};
  } else {
    return false;
  }
  return true;
}

void Caller::make_all_to_all_v() {
  std::vector<int64_t> given;
  std::vector<int64_t> taken;
  int64_t all_given = 0;
  int64_t all_taken = 0;
  for (int peer = 0; peer < size_; ++peer) {
    int64_t begin = 0;
    for (int to = 0; to < rank_; ++to) begin += between(peer, to);
    int64_t of_peer = 0;
    for (int to = 0; to < size_; ++to) of_peer += between(peer, to);
    append(&expected_, slice(values(peer, of_peer), begin, between(peer, rank_), of_.dtype));
    given.push_back(between(rank_, peer));
    taken.push_back(between(peer, rank_));
    all_given += given.back();
    all_taken += taken.back();
  }
  const ConstBuffer in = input(values(rank_, all_given));
  calls_ = {Call::all_to_all_v(in, given, output(all_taken), taken)};
}

bool Caller::make(const std::string& operation) {
  const int64_t n = of_.count;
  if (make_reduction(operation) || make_gather(operation) || make_scatter(operation)) return true;
  if (operation == "broadcast") {
    const ConstBuffer in = input(values(rank_, n));
    result_ = {in_place_, n, of_.dtype, in.device};
    expected_ = values(1, n);
    calls_ = {Call::broadcast(result_, 1)};
  } else if (operation == "all_to_all") {
    const ConstBuffer in = input(values(rank_, n * size_));
    for (int peer = 0; peer < size_; ++peer) {
      append(&expected_, slice(values(peer, n * size_), n * rank_, n, of_.dtype));
    }
    calls_ = {Call::all_to_all(in, output(n * size_))};
  } else if (operation == "all_to_all_v") {
    make_all_to_all_v();
  } else if (operation == "ring") {  // all send and receive at once
    const ConstBuffer in = input(values(rank_, n));
    const int prev = (rank_ + size_ - 1) % size_;
    expected_ = values(prev, n);
    calls_ = {Call::send(in, (rank_ + 1) % size_), Call::recv(output(n), prev)};
  } else if (operation == "self") {  // among others
    const ConstBuffer in = input(values(rank_, n));
    expected_ = values(rank_, n);
    calls_ = {Call::recv(output(n), rank_), Call::send(in, rank_)};
  } else {
    return false;
  }
  return true;
}

std::string Caller::compare(const Bytes& found) const {
  const std::vector<double> values = decode(of_.dtype, found);
  if (values.size() != expected_.size()) {
    return fmt::format("{} values, not {}", values.size(), expected_.size());
  }
  for (size_t i = 0; i < values.size(); ++i) {
    const double most = tolerance(of_.dtype, of_.op) * std::max(1.0, std::abs(expected_[i]));
    if (!(std::abs(values[i] - expected_[i]) <= most)) {
      return fmt::format("[{}] is {} and not {}", i, values[i], expected_[i]);
    }
  }
  return "";
}

std::string Caller::run(const std::string& operation, Wait wait) {
  if (!make(operation)) return "no operation " + operation;
  Result<Work> work = gpu_.communicator().submit(calls_, gpu_.on_stream());
  if (!work.ok()) return work.status().message();
  const size_t bytes = result_.data == nullptr ? 0 : result_.bytes();
  Bytes found;
  if (wait == Wait::kHost) {
    const Status status = work->wait();
    if (!status.ok()) return status.message();
    found = gpu_.peek(result_.data, bytes);
  } else {
    const Status status = work->wait_on(gpu_.stream());
    if (!status.ok()) return status.message();
    found = gpu_.read(result_.data, bytes);
    const Status ended = work->wait();
    if (!ended.ok()) return ended.message();
  }
  if (operation == "ring" && work->source() != calls_[1].peer) return "another source";
  return compare(found);
}

std::string run_all(GpuRank& gpu, const std::vector<std::string>& operations,
                    const std::vector<Case>& cases) {
  int number = 0;
  for (const std::string& operation : operations) {
    for (const Case& of : cases) {
      const Wait wait = ++number % 2 == 0 ? Wait::kHost : Wait::kStream;
      const std::string wrong = Caller(gpu, of).run(operation, wait);
      if (wrong.empty()) continue;
      return fmt::format("{} {} {} of {}: {}", operation, name_of(of.dtype), name_of(of.op),
                         of.count, wrong);
    }
  }
  return "";
}

const std::vector<std::string> kReductions = {"all_reduce", "reduce", "reduce_scatter",
                                              "reduce_scatter_v"};
const std::vector<std::string> kMoves = {"broadcast",    "all_gather", "all_gather_v", "gather",
                                         "gather_v",     "scatter",    "scatter_v",    "all_to_all",
                                         "all_to_all_v", "ring",       "self"};

bool is_taken(DataType dtype, ReduceOp op) {
  if (!is_reducible(dtype, op)) return false;
  if (dtype == DataType::kInt16 || dtype == DataType::kUInt16) return false;
  if (dtype == DataType::kBool) return op != ReduceOp::kBXor;
  if (dtype == DataType::kComplex64 || dtype == DataType::kComplex128) {
    return op == ReduceOp::kSum || op == ReduceOp::kAvg;
  }
  return op != ReduceOp::kBAnd && op != ReduceOp::kBOr && op != ReduceOp::kBXor;
}

class Operations : public testing::TestWithParam<int> {};

TEST_P(Operations, ReductionsOfEveryDtypeAndOp) {
  std::vector<Case> cases;
  for (int dtype = 0; dtype < kDataTypes; ++dtype) {
    for (int op = 0; op < kReduceOps; ++op) {
      const Case of{static_cast<DataType>(dtype), static_cast<ReduceOp>(op), 33};
      if (is_taken(of.dtype, of.op)) cases.push_back(of);
    }
  }
  cases.push_back({DataType::kFloat32, ReduceOp::kSum, 0});
  cases.push_back({DataType::kFloat32, ReduceOp::kAvg, 1});
  cases.push_back({DataType::kFloat32, ReduceOp::kSum, 30'000});
  cases.push_back({DataType::kFloat32, ReduceOp::kAvg, 1000, true});
  expect_well(
      on_ranks(GetParam(), {}, [&](GpuRank& gpu) { return run_all(gpu, kReductions, cases); }));
}

TEST_P(Operations, MovesOfEveryDtype) {
  std::vector<Case> cases;
  for (int dtype = 0; dtype < kDataTypes; ++dtype) {
    cases.push_back({static_cast<DataType>(dtype), ReduceOp::kSum, 12});
  }
  for (const int64_t count : {0, 2, 20'000}) {
    cases.push_back({DataType::kFloat32, ReduceOp::kSum, count});
  }
  expect_well(on_ranks(GetParam(), {}, [&](GpuRank& gpu) { return run_all(gpu, kMoves, cases); }));
}

INSTANTIATE_TEST_SUITE_P(Sizes, Operations, testing::Values(2, 3, 4));

TEST(OperationsAlone, OneRankCopiesWithoutNccl) {
  std::vector<std::string> operations = {"all_reduce",   "reduce_scatter", "all_gather",
                                         "all_gather_v", "all_to_all",     "self"};
  const std::vector<Case> cases = {{DataType::kFloat32, ReduceOp::kSum, 1000},
                                   {DataType::kUInt16, ReduceOp::kMax, 7},
                                   {DataType::kFloat32, ReduceOp::kSum, 0}};
  expect_well(on_ranks(1, {}, [&](GpuRank& gpu) {
    const std::string wrong = run_all(gpu, operations, cases);
    const bool is_free = gpu.fake().calls("ncclCommInitRankConfig") == 0;
    return is_free ? wrong : "NCCL was called";
  }));
}

}  // namespace
}  // namespace ciuic::nccl_test
