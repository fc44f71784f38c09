// SPDX-License-Identifier: Apache-2.0
// nccl_ranks.cc: fork, pipes, and CUDA by the driver.

#include "nccl_ranks.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

namespace ciuic::nccl {

Gate::Gate(cuda::Stream stream) {
  const auto wait = [](void* gate) { static_cast<Gate*>(gate)->opened_.get_future().wait(); };
  EXPECT_EQ(ciuic_fake_enqueue(stream, wait, this), cuda::kSuccess);
}

Rank::Rank(int own, int ranks, const std::vector<int>& in, const std::vector<int>& out)
    : rank(own), ranks_(ranks), in_(in), out_(out) {
  const Result<cuda::Library> cuda_library = cuda::find_cuda(CIUIC_FAKE_CUDART, {});
  const std::string paths[] = {CIUIC_FAKE_NCCL};
  const Result<Library> library = find_nccl("libnccl.so.2", paths);
  EXPECT_TRUE(cuda_library.ok()) << cuda_library.status().message();
  EXPECT_TRUE(library.ok()) << library.status().message();
  if (!cuda_library.ok() || !library.ok()) std::_Exit(1);
  cuda = cuda_library->functions;
  nccl = library->functions;
  version = library->version;
  EXPECT_EQ(cuda.set_device(rank), cuda::kSuccess);
  stream = make_stream();
}

void Rank::say(int to, const void* bytes, size_t size) const {
  const ssize_t sent = ::write(out_[static_cast<size_t>(to)], bytes, size);
  if (sent != static_cast<ssize_t>(size)) std::_Exit(3);
}

void Rank::hear(void* bytes, size_t size) const {
  const ssize_t received = ::read(in_[static_cast<size_t>(rank)], bytes, size);
  if (received != static_cast<ssize_t>(size)) std::_Exit(4);
}

UniqueId Rank::share_id(int size) {
  UniqueId id;
  if (rank == 0) {
    EXPECT_EQ(nccl.get_unique_id(&id), kSuccess);
    for (int peer = 1; peer < size && peer < ranks_; ++peer) say(peer, &id, sizeof id);
  } else {
    hear(&id, sizeof id);
  }
  return id;
}

int Rank::init(int size, const UniqueId& id, Config config, Comm* made) const {
  return nccl.comm_init_rank_config(made, size, id, rank, &config);
}

Comm Rank::join(int size) {
  Comm comm = nullptr;
  EXPECT_EQ(init(size, share_id(size), default_config(version), &comm), kSuccess)
      << nccl.get_last_error(nullptr);
  return comm;
}

void Rank::meet() {
  char byte = 0;
  if (rank == 0) {
    for (int peer = 1; peer < ranks_; ++peer) hear(&byte, 1);
    for (int peer = 1; peer < ranks_; ++peer) say(peer, &byte, 1);
  } else {
    say(0, &byte, 1);
    hear(&byte, 1);
  }
}

int Rank::fail(Comm comm, int code) const {
  void* library = ::dlopen("libnccl.so.2", RTLD_NOW | RTLD_NOLOAD);
  using Function = int(void*, int);
  const auto function = reinterpret_cast<Function*>(::dlsym(library, "ciuic_fake_nccl_fail"));
  return function(comm, code);
}

cuda::Stream Rank::make_stream() const {
  cuda::Stream made = nullptr;
  EXPECT_EQ(cuda.stream_create_with_flags(&made, cuda::kNonBlocking), cuda::kSuccess);
  return made;
}

cuda::Event Rank::record(cuda::Stream on) const {
  cuda::Event event = nullptr;
  EXPECT_EQ(cuda.event_create_with_flags(&event, cuda::kDisableTiming), cuda::kSuccess);
  EXPECT_EQ(cuda.event_record(event, on), cuda::kSuccess);
  return event;
}

Buffer Rank::upload(const void* bytes, size_t size) const {
  Buffer made;
  EXPECT_EQ(cuda.malloc(&made.at, size), cuda::kSuccess);
  EXPECT_EQ(cuda.memcpy_async(made.at, bytes, size, cuda::kHostToDevice, stream), cuda::kSuccess);
  EXPECT_EQ(cuda.stream_synchronize(stream), cuda::kSuccess);
  return made;
}

void Rank::download(void* bytes, const Buffer& from, size_t size) const {
  EXPECT_EQ(cuda.memcpy_async(bytes, from.at, size, cuda::kDeviceToHost, stream), cuda::kSuccess);
  EXPECT_EQ(cuda.stream_synchronize(stream), cuda::kSuccess);
}

float Rank::peek(const Buffer& from) const {
  float value = 0;
  std::memcpy(&value, ciuic_fake_host_of(from.at), sizeof value);
  return value;
}

void run_ranks(int size, const Environment& environment, const std::function<void(Rank&)>& body) {
  std::vector<int> in;
  std::vector<int> out;
  for (int rank = 0; rank < size; ++rank) {
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    in.push_back(ends[0]);
    out.push_back(ends[1]);
  }
  std::vector<pid_t> children;
  for (int rank = 0; rank < size; ++rank) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      ::setenv("FAKE_CUDA_DEVICES", "4", 1);
      for (const auto& [name, value] : environment) ::setenv(name.c_str(), value.c_str(), 1);
      Rank own(rank, size, in, out);
      body(own);
      std::exit(testing::Test::HasFailure() ? 1 : 0);  // so that sanitizers say what they have
    }
    children.push_back(child);
  }
  for (const int end : in) ::close(end);
  for (const int end : out) ::close(end);
  for (size_t rank = 0; rank < children.size(); ++rank) {
    int status = -1;
    ASSERT_EQ(::waitpid(children[rank], &status, 0), children[rank]);
    EXPECT_EQ(status, 0) << "rank " << rank << " of " << size;
  }
}

void run_ranks(int size, const std::function<void(Rank&)>& body) { run_ranks(size, {}, body); }

}  // namespace ciuic::nccl
