// SPDX-License-Identifier: Apache-2.0
// unique_fd.h: owns one file descriptor.
#pragma once

#include <cstdint>
#include <utility>

namespace ciuic::posix {

class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}  // takes it over; -1 holds nothing
  UniqueFd(UniqueFd&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)),
        marked_in_(std::exchange(other.marked_in_, kNotMarked)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) {
      reset();
      fd_ = std::exchange(other.fd_, -1);
      marked_in_ = std::exchange(other.marked_in_, kNotMarked);
    }
    return *this;
  }
  ~UniqueFd() { reset(); }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  explicit operator bool() const { return valid(); }

  // Closes what it holds, then owns `fd`. Where a fork has closed it already, the number may be
  // another descriptor's by now, and is left alone.
  void reset(int fd = -1);

  // A child made by fork() closes it from now on; see fork_closed.h, whose make_fork_closed() lets
  // no fork come between making and this. Does nothing where nothing is held.
  void close_in_children();

 private:
  static constexpr int64_t kNotMarked = -1;

  int fd_ = -1;
  int64_t marked_in_ = kNotMarked;  // else the fork_generation(): later ones have closed it
};

}  // namespace ciuic::posix
