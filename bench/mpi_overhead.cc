// SPDX-License-Identifier: Apache-2.0
// mpi_overhead.cc: what backend "mpi" adds to the MPI's own call. Start it by that MPI's mpiexec:
//
//   mpiexec -n 2 mpi_overhead LIBRARY [ROUNDS]
//
// One pair of processes all-reduces in place by MPI_Allreduce, by MPI_Iallreduce and MPI_Test, and
// by Communicator::all_reduce() and wait(), in rounds of all three, each in a loop of C++. It needs
// no mpi.h: constants are those of the standard ABI, or those of Open MPI, which has none.

#include <dlfcn.h>
#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "bench/native_loop.h"
#include "ciuic/mpi.h"
#include "drivers/mpi/mpi.h"

namespace {

using ciuic::Communicator;
using ciuic::Status;
using ciuic::StatusCode;
namespace mpi = ciuic::mpi;

using AllReduce = int(const void* input, void* output, int count, mpi::Handle type, mpi::Handle op,
                      mpi::Handle comm);

constexpr int64_t kTimeoutMs = 60'000;
constexpr int kStuckS = 60;  // one measurement takes a fraction of a second

enum Way { kBlocking, kTested, kCiuic, kWays };
constexpr const char* kNames[kWays] = {"MPI_Allreduce", "MPI_Iallreduce, MPI_Test", "Ciuic"};

struct Size {
  int64_t bytes;
  int calls;
};
constexpr Size kSizes[] = {{8, 1000}, {64 << 10, 300}, {1 << 20, 60}};

// Where it stands, should it not go on. MPI has no time-outs of its own.
char stage[128] = "the join";

void tell_stuck(int /*signal*/) {
  const auto say = [](const char* text) {
    [[maybe_unused]] const ssize_t told = ::write(STDERR_FILENO, text, std::strlen(text));
  };
  say("mpi_overhead: no end in time of ");
  say(stage);
  say("\n");
  ::_exit(EXIT_FAILURE);
}

void begin_stage(const std::string& name) {
  ::alarm(0);
  std::snprintf(stage, sizeof stage, "%s", name.c_str());
  ::alarm(kStuckS);
}

// Those of <mpi.h> of Open MPI 4 and 5, whose handles are the addresses of its objects; empty where
// the library is another.
mpi::Names open_mpi_constants(void* library) {
  static constexpr std::pair<const char*, const char*> kObjects[] = {
      {"COMM_WORLD", "comm_world"},
      {"BYTE", "byte"},
      {"FLOAT", "float"},
      {"DOUBLE", "double"},
      {"INT8_T", "int8_t"},
      {"UINT8_T", "uint8_t"},
      {"INT16_T", "int16_t"},
      {"UINT16_T", "uint16_t"},
      {"INT32_T", "int32_t"},
      {"UINT32_T", "uint32_t"},
      {"INT64_T", "int64_t"},
      {"UINT64_T", "uint64_t"},
      {"SUM", "op_sum"},
      {"MIN", "op_min"},
      {"MAX", "op_max"},
      {"PROD", "op_prod"},
      {"BAND", "op_band"},
      {"BOR", "op_bor"},
      {"BXOR", "op_bxor"},
      {"ERRORS_RETURN", "errors_return"}};
  mpi::Names names = {{"IN_PLACE", 1},          {"ANY_SOURCE", -1},     {"ANY_TAG", -1},
                      {"THREAD_SERIALIZED", 2}, {"THREAD_MULTIPLE", 3}, {"TAG_UB", 0},
                      {"HANDLE_BYTES", 8},      {"STATUS_BYTES", 24},   {"SOURCE_OFFSET", 0},
                      {"TAG_OFFSET", 4}};
  for (const auto& [name, object] : kObjects) {
    const void* address = ::dlsym(library, fmt::format("ompi_mpi_{}", object).c_str());
    if (address == nullptr) return {};
    names[name] = static_cast<int64_t>(std::bit_cast<intptr_t>(address));
  }
  return names;
}

// The loops. One thread calls; each duration is from the end of the call before to its own.
class Loops {
 public:
  Status open(const std::string& path);
  Status time(Way way, int64_t bytes, int warm_up, std::span<int64_t> nanoseconds);
  const Communicator& communicator() const { return *communicator_; }
  const std::string& version() const { return version_; }

 private:
  Status failed(int code) const {
    return {StatusCode::kSystem, mpi::error_text(mpi_.functions, code)};
  }
  int call(Way way, int count);

  mpi::Library mpi_;
  AllReduce* all_reduce_ = nullptr;
  std::unique_ptr<Communicator> communicator_;
  std::vector<float> buffer_;  // zeros stay zeros
  std::string version_;
};

Status Loops::open(const std::string& path) {
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL | RTLD_NODELETE);
  if (library == nullptr) return {StatusCode::kUnavailable, ::dlerror()};
  ciuic::CommunicatorOptions options;
  options.backend = "mpi";
  options.timeout_ms = kTimeoutMs;
  options.mpi = {.libraries = {path}, .constants = open_mpi_constants(library), .communicator = 0};
  auto opened = mpi::open_mpi(options.mpi.libraries, options.mpi.constants);
  if (!opened.ok()) return opened.status();
  mpi_ = std::move(*opened);
  all_reduce_ = reinterpret_cast<AllReduce*>(::dlsym(library, "MPI_Allreduce"));
  if (all_reduce_ == nullptr) return {StatusCode::kUnavailable, ::dlerror()};
  auto joined = Communicator::create(options);
  if (!joined.ok()) return joined.status();
  communicator_ = std::move(*joined);
  version_ = mpi::version_text(mpi_.functions);
  buffer_.resize(static_cast<size_t>(std::rbegin(kSizes)->bytes) / sizeof(float));
  return {};
}

// On MPI_COMM_WORLD, which Ciuic does not use: it has its own duplicate.
int Loops::call(Way way, int count) {
  const mpi::Constants& known = mpi_.constants;
  const mpi::Handle type = known.types[static_cast<size_t>(ciuic::DataType::kFloat32)];
  const mpi::Handle sum = known.ops[static_cast<size_t>(ciuic::ReduceOp::kSum)];
  if (way == kBlocking) {
    return all_reduce_(known.in_place, buffer_.data(), count, type, sum, known.comm_world);
  }
  mpi::Handle request = 0;
  alignas(16) std::byte status[mpi::kMostStatusBytes];
  int code = mpi_.functions.iallreduce(known.in_place, buffer_.data(), count, type, sum,
                                       known.comm_world, &request);
  int has_ended = 0;
  while (code == mpi::kSuccess && has_ended == 0) {
    code = mpi_.functions.test(&request, &has_ended, status);
  }
  return code;
}

Status Loops::time(Way way, int64_t bytes, int warm_up, std::span<int64_t> nanoseconds) {
  const int64_t count = bytes / static_cast<int64_t>(sizeof(float));
  if (way == kCiuic) {
    const ciuic::MutableBuffer buffer{buffer_.data(), count, ciuic::DataType::kFloat32, {}};
    return ciuic::bench::time_all_reduce(*communicator_, buffer, ciuic::ReduceOp::kSum, "", warm_up,
                                         nanoseconds);
  }
  int code = mpi::kSuccess;
  for (int i = 0; code == mpi::kSuccess && i < warm_up; ++i) {
    code = call(way, static_cast<int>(count));
  }
  ciuic::TimeNs last = ciuic::now_ns();
  for (int64_t& duration : nanoseconds) {
    if (code == mpi::kSuccess) code = call(way, static_cast<int>(count));
    const ciuic::TimeNs now = ciuic::now_ns();
    duration = now - last;
    last = now;
  }
  return code == mpi::kSuccess ? Status() : failed(code);
}

template <typename Number>
Number median(std::vector<Number> numbers) {
  const auto middle = numbers.begin() + static_cast<ptrdiff_t>(numbers.size() / 2);
  std::nth_element(numbers.begin(), middle, numbers.end());
  return *middle;
}

// A core for each rank where there are as many, as `ciuic bench` has it.
void pin(int rank, int size) {
  cpu_set_t allowed;
  if (::sched_getaffinity(0, sizeof allowed, &allowed) != 0 || CPU_COUNT(&allowed) < size) return;
  int left = rank;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &allowed) || left-- > 0) continue;
    CPU_ZERO(&allowed);
    CPU_SET(core, &allowed);
    [[maybe_unused]] const int unheard = ::sched_setaffinity(0, sizeof allowed, &allowed);
    return;
  }
}

Status measure(Loops* loops, const Size& size, int rounds) {
  std::array<std::vector<double>, kWays> medians;  // microseconds, of each round
  std::vector<int64_t> nanoseconds(static_cast<size_t>(size.calls));
  for (int round = 0; round < rounds; ++round) {
    for (int turn = 0; turn < kWays; ++turn) {
      const auto way = static_cast<Way>((round + turn) % kWays);
      begin_stage(fmt::format("{} of {} bytes, round {}", kNames[way], size.bytes, round));
      Status status = loops->time(way, size.bytes, size.calls / 10, nanoseconds);
      if (!status.ok()) return status;
      medians[way].push_back(static_cast<double>(median(nanoseconds)) / 1e3);
    }
  }
  if (loops->communicator().rank() != 0) return {};
  for (const Way way : {kBlocking, kTested, kCiuic}) {
    std::vector<double> ratios;
    std::vector<double> differences;
    for (size_t round = 0; round < medians[way].size(); ++round) {
      ratios.push_back(medians[kCiuic][round] / medians[way][round]);
      differences.push_back(medians[kCiuic][round] - medians[way][round]);
    }
    fmt::print("{:>8}  {:<25}{:>10.3f}", size.bytes, kNames[way], median(medians[way]));
    if (way != kCiuic) fmt::print("{:>8.3f}{:>+10.3f}", median(ratios), median(differences));
    fmt::print("\n");
  }
  return {};
}

Status run(const std::string& library, int rounds) {
  begin_stage("the join");
  Loops loops;
  Status status = loops.open(library);
  if (!status.ok()) return status;
  pin(loops.communicator().rank(), loops.communicator().size());
  if (loops.communicator().rank() == 0) {
    fmt::print("{}; {} rounds\n   bytes  by                       median µs   Ciuic/it  Ciuic-it\n",
               loops.version(), rounds);
  }
  for (const Size& size : kSizes) {
    if (status.ok()) status = measure(&loops, size, rounds);
  }
  begin_stage("leaving");
  return status;
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc == 3 ? std::atoi(argv[2]) : 31;
  if (argc < 2 || argc > 3 || rounds <= 0) {
    std::fprintf(stderr, "usage: mpiexec -n 2 mpi_overhead LIBRARY [ROUNDS]\n");
    return 2;
  }
  for (const int number : {SIGALRM, SIGTERM}) std::signal(number, tell_stuck);
  const Status status = run(argv[1], rounds);
  if (!status.ok()) std::fprintf(stderr, "mpi_overhead: %s\n", status.message().c_str());
  if (status.ok()) ciuic::leave_mpi();
  return status.ok() ? 0 : 1;
}
