// SPDX-License-Identifier: Apache-2.0
// gpu_rank.h: one rank with a GPU of the fake CUDA, its memory, and kernels that take their time.
#pragma once

#include <functional>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "ciuic/communicator.h"
#include "cudart/fake_cuda.h"
#include "drivers/cuda/cuda.h"
#include "rank_processes.h"
#include "values.h"

namespace ciuic::nccl_test {

class GpuRank;

struct RankOptions {
  int rank = 0;
  int size = 2;
  std::string directory;  // where they meet
  std::string backend = "nccl";
  int64_t timeout_ms = 60'000;
  int device = -1;  // -1: that of its rank
  int devices = 0;  // that are there; 0: one a rank
  std::function<void(GpuRank& gpu)> before_join = {};
};

// The fake's own functions.
struct FakeCuda {
  decltype(&ciuic_fake_host_of) host_of = nullptr;
  decltype(&ciuic_fake_fill) fill = nullptr;
  decltype(&ciuic_fake_store) store = nullptr;
  decltype(&ciuic_fake_enqueue) enqueue = nullptr;
  decltype(&ciuic_fake_drop) drop = nullptr;
  decltype(&ciuic_fake_set_capturing) set_capturing = nullptr;
  decltype(&ciuic_fake_calls) calls = nullptr;
};

class GpuRank {
 public:
  // Opens the fakes in this process; join() then makes the communicator.
  explicit GpuRank(RankOptions options);
  ~GpuRank();

  Status join();
  Communicator& communicator() { return *communicator_; }
  void leave() { communicator_.reset(); }

  const RankOptions& options() const { return options_; }
  const FakeCuda& fake() const { return fake_; }
  const cuda::Functions& cuda() const { return cuda_->functions; }
  Stream stream() const { return {stream_, device_}; }  // the program's own
  Device device() const { return {DeviceKind::kCuda, device_}; }
  OperationOptions on_stream() const;

  // Memory of the device, until the process ends. Holds 0xCD.
  void* allocate(size_t bytes);

  // Kernels on the program's stream, that take `delay_us` each.
  void write(void* target, const Bytes& bytes, int64_t delay_us);

  // What is there now, whatever is still under way.
  Bytes peek(const void* source, size_t bytes) const;

  // Copied out on the program's stream, once that has come so far.
  Bytes read(const void* source, size_t bytes);

 private:
  const RankOptions options_;
  int device_ = 0;
  const cuda::Library* cuda_ = nullptr;
  FakeCuda fake_;
  void* stream_ = nullptr;
  std::unique_ptr<Communicator> communicator_;
};

// Holds the program's stream until it is opened.
class Gate {
 public:
  explicit Gate(GpuRank& gpu);
  void open() { opened_.set_value(); }

 private:
  std::promise<void> opened_;
};

// Runs `body` as each of `size` ranks, in a process of its own, and returns what each says: ""
// where all is well.
using Body = std::function<std::string(GpuRank& rank)>;
std::vector<std::string> on_ranks(int size, const RankOptions& options, const Body& body);

// Fails the test where one is not "".
void expect_well(const std::vector<std::string>& said);

}  // namespace ciuic::nccl_test
