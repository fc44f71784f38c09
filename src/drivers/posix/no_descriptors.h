// SPDX-License-Identifier: Apache-2.0
// no_descriptors.h: for tests: as long as it lives, this process can open no descriptor.
#pragma once

#include <sys/eventfd.h>
#include <sys/resource.h>

#include <algorithm>
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

}  // namespace ciuic::posix
