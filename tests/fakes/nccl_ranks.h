// SPDX-License-Identifier: Apache-2.0
// nccl_ranks.h: forked processes that each have a device, for tests of the fake libnccl.
#pragma once

#include <cstddef>
#include <functional>
#include <future>
#include <map>
#include <string>
#include <vector>

#include "cudart/fake_cuda.h"
#include "drivers/cuda/cuda.h"
#include "drivers/nccl/nccl.h"

namespace ciuic::nccl {

// Device memory.
struct Buffer {
  void* at = nullptr;

  void* element(size_t index) const { return static_cast<float*>(at) + index; }
};

// Holds a stream until it is opened.
class Gate {
 public:
  explicit Gate(cuda::Stream stream);
  void open() { opened_.set_value(); }

 private:
  std::promise<void> opened_;
};

// One of the ranks, in its process. What it makes lives until the process ends.
class Rank {
 public:
  Rank(int own, int ranks, const std::vector<int>& in, const std::vector<int>& out);

  const int rank;
  int version = 0;
  cuda::Functions cuda;
  Functions nccl;
  cuda::Stream stream = nullptr;

  UniqueId share_id(int size);  // of rank 0, with the first `size` ranks
  int init(int size, const UniqueId& id, Config config, Comm* made) const;
  Comm join(int size);  // shares an id; it works
  void meet();          // all ranks
  int fail(Comm comm, int code) const;

  cuda::Stream make_stream() const;
  cuda::Event record(cuda::Stream on) const;

  template <typename T>
  Buffer buffer(const std::vector<T>& content) const {
    return upload(content.data(), content.size() * sizeof(T));
  }
  // Waits for the stream.
  template <typename T>
  std::vector<T> read_as(const Buffer& from, size_t count) const {
    std::vector<T> all(count);
    download(all.data(), from, count * sizeof(T));
    return all;
  }
  std::vector<float> read(const Buffer& from, size_t count) const {
    return read_as<float>(from, count);
  }
  float peek(const Buffer& from) const;  // waits for nothing

 private:
  Buffer upload(const void* bytes, size_t size) const;
  void download(void* bytes, const Buffer& from, size_t size) const;
  void say(int to, const void* bytes, size_t size) const;
  void hear(void* bytes, size_t size) const;

  const int ranks_;
  const std::vector<int> in_;   // a pipe to each rank: ends to read
  const std::vector<int> out_;  // and to write
};

// Runs `body` in `size` processes, and passes on whether a check failed in one.
using Environment = std::map<std::string, std::string>;
void run_ranks(int size, const Environment& environment, const std::function<void(Rank&)>& body);
void run_ranks(int size, const std::function<void(Rank&)>& body);

}  // namespace ciuic::nccl
