// SPDX-License-Identifier: Apache-2.0
// gpu_rank.cc: the fakes, opened in a child.

#include "gpu_rank.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace ciuic::nccl_test {

namespace {

void must(bool is_so, const char* what) {
  if (is_so) return;
  std::fprintf(stderr, "nccl_test: %s\n", what);
  ::_exit(9);
}

template <typename Function>
void find(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(::dlsym(library, name));
  must(*function != nullptr, name);
}

FakeCuda find_fake() {
  void* library = ::dlopen(CIUIC_FAKE_CUDART, RTLD_NOW);
  must(library != nullptr, CIUIC_FAKE_CUDART);
  FakeCuda fake;
  find(library, "ciuic_fake_host_of", &fake.host_of);
  find(library, "ciuic_fake_fill", &fake.fill);
  find(library, "ciuic_fake_store", &fake.store);
  find(library, "ciuic_fake_enqueue", &fake.enqueue);
  find(library, "ciuic_fake_drop", &fake.drop);
  find(library, "ciuic_fake_set_capturing", &fake.set_capturing);
  find(library, "ciuic_fake_calls", &fake.calls);
  return fake;
}

}  // namespace

GpuRank::GpuRank(RankOptions options) : options_(std::move(options)) {
  const int devices = options_.devices > 0 ? options_.devices : options_.size;
  ::setenv("FAKE_CUDA_DEVICES", std::to_string(devices).c_str(), 1);
  ::setenv("CIUIC_CUDA_LIBRARY", CIUIC_FAKE_CUDART, 1);
  ::setenv("CIUIC_NCCL_LIBRARY", CIUIC_FAKE_NCCL, 1);
  device_ = options_.device >= 0 ? options_.device : options_.rank;
  const auto opened = cuda::open_cuda(CIUIC_FAKE_CUDART);
  must(opened.ok(), "no fake CUDA");
  cuda_ = *opened;
  fake_ = find_fake();
  must(cuda().set_device(device_) == cuda::kSuccess, "cudaSetDevice");
  must(cuda().stream_create_with_flags(&stream_, cuda::kNonBlocking) == cuda::kSuccess,
       "cudaStreamCreateWithFlags");
}

// What is held on the device may never come to its end; it goes with the process.
GpuRank::~GpuRank() { leave(); }

Status GpuRank::join() {
  CommunicatorOptions options;
  options.rank = options_.rank;
  options.size = options_.size;
  options.timeout_ms = options_.timeout_ms;
  options.backend = options_.backend;
  if (options_.size > 1) {
    auto store = open_store("file://" + options_.directory, 60'000);
    if (!store.ok()) return store.status();
    options.store = std::move(*store);
  }
  auto communicator = Communicator::create(options);
  if (!communicator.ok()) return communicator.status();
  communicator_ = std::move(*communicator);
  return {};
}

OperationOptions GpuRank::on_stream() const {
  OperationOptions options;
  options.stream = stream();
  return options;
}

void* GpuRank::allocate(size_t bytes) {
  void* memory = nullptr;
  must(cuda().malloc(&memory, bytes > 0 ? bytes : 1) == cuda::kSuccess, "cudaMalloc");
  return memory;
}

void GpuRank::write(void* target, const Bytes& bytes, int64_t delay_us) {
  if (bytes.empty()) return;
  must(fake_.store(stream_, target, bytes.data(), bytes.size(), delay_us) == cuda::kSuccess,
       "a kernel");
}

Bytes GpuRank::peek(const void* source, size_t bytes) const {
  Bytes found(bytes);
  if (bytes > 0) std::memcpy(found.data(), fake_.host_of(source), bytes);
  return found;
}

Bytes GpuRank::read(const void* source, size_t bytes) {
  Bytes found(bytes);
  if (bytes == 0) return found;
  void* pinned = nullptr;
  must(cuda().host_alloc(&pinned, bytes, cuda::kHostAllocPortable) == cuda::kSuccess,
       "cudaHostAlloc");
  must(cuda().memcpy_async(pinned, source, bytes, cuda::kDeviceToHost, stream_) == cuda::kSuccess,
       "cudaMemcpyAsync");
  must(cuda().stream_synchronize(stream_) == cuda::kSuccess, "cudaStreamSynchronize");
  std::memcpy(found.data(), pinned, bytes);
  (void)cuda().free_host(pinned);
  return found;
}

Gate::Gate(GpuRank& gpu) {
  using Opened = std::future<void>;
  const auto wait = [](void* data) {
    const std::unique_ptr<Opened> opened(static_cast<Opened*>(data));
    opened->wait();
  };
  must(gpu.fake().enqueue(gpu.stream().handle, wait, new Opened(opened_.get_future())) == 0,
       "a gate");
}

std::vector<std::string> on_ranks(int size, const RankOptions& options, const Body& body) {
  const fault::Directory directory;
  fault::RankProcesses ranks(size, [&](int rank, const fault::Teller& teller) {
    RankOptions own = options;
    own.rank = rank;
    own.size = size;
    own.directory = directory.path();
    GpuRank gpu(own);
    if (own.before_join) own.before_join(gpu);
    const Status joined = gpu.join();
    teller.say("said " + (joined.ok() ? body(gpu) : "join: " + joined.message()));
  });
  std::vector<std::string> said;
  for (int rank = 0; rank < size; ++rank) {
    const std::string line = ranks.hear(rank);
    said.push_back(line.rfind("said ", 0) == 0 ? line.substr(5) : "died");
  }
  for (int rank = 0; rank < size; ++rank) {
    if (ranks.exit_status(rank) != 0) said[static_cast<size_t>(rank)] += " and ended badly";
  }
  return said;
}

void expect_well(const std::vector<std::string>& said) {
  for (size_t rank = 0; rank < said.size(); ++rank) EXPECT_EQ(said[rank], "") << "rank " << rank;
}

}  // namespace ciuic::nccl_test
