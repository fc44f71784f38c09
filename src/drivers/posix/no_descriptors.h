// SPDX-License-Identifier: Apache-2.0
// no_descriptors.h: for tests: as long as it lives, this process can open no descriptor.
#pragma once

#include <sys/eventfd.h>
#include <sys/resource.h>

#include <algorithm>
#include <functional>
#include <latch>
#include <thread>
#include <utility>
#include <vector>

#include "drivers/posix/unique_fd.h"

namespace ciuic::posix {

class NoDescriptors {
 public:
  NoDescriptors() {
    getrlimit(RLIMIT_NOFILE, &before_);
    // Not fewer: poll(2) refuses more entries than the limit.
    const rlimit low{std::min<rlim_t>(before_.rlim_cur, 256), before_.rlim_max};
    setrlimit(RLIMIT_NOFILE, &low);
    while (true) {
      UniqueFd filler(::eventfd(0, EFD_CLOEXEC));
      if (!filler) return;
      fillers_.push_back(std::move(filler));
    }
  }
  ~NoDescriptors() { setrlimit(RLIMIT_NOFILE, &before_); }
  // Can open one again.
  void spare_one() { fillers_.pop_back(); }

  NoDescriptors(const NoDescriptors&) = delete;
  NoDescriptors& operator=(const NoDescriptors&) = delete;

 private:
  rlimit before_{};
  std::vector<UniqueFd> fillers_;
};

// A thread for beside it, which ends with this object and not with its body: where UBSan looks on,
// a thread's end takes descriptors.
class StayingThread {
 public:
  explicit StayingThread(std::function<void()> body)
      : thread_([this, body = std::move(body)] {
          body();
          is_done_.count_down();
          may_end_.wait();
        }) {}
  ~StayingThread() {
    may_end_.count_down();
    thread_.join();
  }
  void wait() { is_done_.wait(); }  // for the body

  StayingThread(const StayingThread&) = delete;
  StayingThread& operator=(const StayingThread&) = delete;

 private:
  std::latch is_done_{1};
  std::latch may_end_{1};
  std::thread thread_;
};

}  // namespace ciuic::posix
