// SPDX-License-Identifier: Apache-2.0
// unique_fd.h: owns one file descriptor.
#pragma once

#include <utility>

namespace ciuic::posix {

class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}  // takes it over; -1 holds nothing
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) reset(other.release());
    return *this;
  }
  ~UniqueFd() { reset(); }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  explicit operator bool() const { return valid(); }

  int release() { return std::exchange(fd_, -1); }
  void reset(int fd = -1);  // closes what it holds, then owns `fd`

 private:
  int fd_ = -1;
};

}  // namespace ciuic::posix
