// SPDX-License-Identifier: Apache-2.0
// earlier.cc: which operations have not ended yet.

#include "earlier.h"

#include <algorithm>

#include "interrupts.h"

namespace ciuic::torch_backend {

bool EarlierWork::wait(Communicator* communicator) {
  const Waited waited = wait_interruptibly(work_, communicator);
  if (waited.status.ok()) {
    if (const Pointer work = copies_back_.lock()) return work->wait();
  }
  return !waited.is_interrupted;
}

void Earlier::add(const ciuic::Work& work, const EarlierWork::Pointer& copies_back) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (works_.size() >= limit_) {
    forget_done();
    limit_ = std::max(kLimit, 2 * works_.size());
  }
  works_.emplace_back(work, copies_back);
}

EarlierWorks Earlier::unfinished() {
  const std::lock_guard<std::mutex> lock(mutex_);
  forget_done();
  return works_;
}

void Earlier::forget_done() {
  const auto is_done = [](EarlierWork& work) { return work.done(); };
  works_.erase(std::remove_if(works_.begin(), works_.end(), is_done), works_.end());
}

}  // namespace ciuic::torch_backend
