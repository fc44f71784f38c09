// SPDX-License-Identifier: Apache-2.0
// memfd.h: anonymous memory that is given to other processes by descriptor, and its mappings.
#pragma once

#include <cstddef>
#include <string>
#include <utility>

#include "ciuic/status.h"
#include "drivers/posix/unique_fd.h"

namespace ciuic::posix {

// Owns one mapping of memory.
class Mapping {
 public:
  Mapping() = default;
  Mapping(Mapping&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Mapping& operator=(Mapping&& other) noexcept;
  ~Mapping();

  // Maps the first `bytes` of the descriptor, shared, with all pages there at once. kResource where
  // address space or memory does not do, with the number of bytes.
  static Result<Mapping> map(int fd, size_t bytes, bool writable);

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

// Memory of a fixed size: reserved, so that touching it cannot fail later, and sealed against
// shrinking and growing. kResource: not so much memory, with the number of bytes.
Result<UniqueFd> create_memfd(const std::string& name, size_t bytes);

// Lets no one map it writable from now on; mappings that there are stay writable. Kernels before
// 5.1 do not know this: they leave it open.
void seal_future_writes(int fd);

// For a descriptor that came from outside; the library's own are closed on exec from the first.
void close_on_exec(int fd);

// kMismatch unless it is memory of exactly `bytes` that nobody can shrink or grow: a mapping of it
// can then be read without the danger of SIGBUS.
Status check_sealed(int fd, size_t bytes);

}  // namespace ciuic::posix
