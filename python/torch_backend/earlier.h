// SPDX-License-Identifier: Apache-2.0
// earlier.h: the asynchronous collectives of a group that may not have ended, for barrier().
//
// gloo's barrier waits for what its rank has started before it, and programs that drop the Work of
// an operation rely on that. Messages are not among it: a peer may send only after the barrier.
#pragma once

#include <mutex>
#include <vector>

#include "work.h"

namespace ciuic::torch_backend {

// One operation. Does not keep its tensors.
class EarlierWork {
 public:
  using Pointer = c10::intrusive_ptr<c10d::Work>;

  // `copies_back` is the operation itself, where its end() has something to copy, else null.
  EarlierWork(const ciuic::Work& work, const Pointer& copies_back)
      : work_(work), copies_back_(copies_back) {}

  bool done() { return work_.done() && copies_back_.expired(); }

  // Until what it gives has been copied back, too, and throws where that fails. Where the operation
  // does, the group has ended, and the barrier says so. False: Python raises something (Waited).
  bool wait(Communicator* communicator);

 private:
  ciuic::Work work_;
  c10::weak_intrusive_ptr<c10d::Work> copies_back_;  // lives until it has
};

using EarlierWorks = std::vector<EarlierWork>;

// For any thread.
class Earlier {
 public:
  void add(const ciuic::Work& work, const EarlierWork::Pointer& copies_back);
  EarlierWorks unfinished();

 private:
  void forget_done();

  static constexpr size_t kLimit = 32;
  std::mutex mutex_;
  EarlierWorks works_;
  size_t limit_ = kLimit;  // with so many, those that are done are looked for
};

}  // namespace ciuic::torch_backend
