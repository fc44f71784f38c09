// SPDX-License-Identifier: Apache-2.0
// completions.h: threads that call the functions given to Work::on_done().
//
// They are not the engine's thread, so that such a function may itself call operations and wait for
// them. Threads are made when there is something to do, four at most.
#pragma once

#include <functional>
#include <memory>
#include <thread>
#include <vector>

namespace ciuic::engine {

class Completions {
 public:
  Completions();
  ~Completions();  // what is queued is still called
  Completions(const Completions&) = delete;
  Completions& operator=(const Completions&) = delete;

  void call(std::function<void()> fn);  // any thread

 private:
  struct Queue;
  std::shared_ptr<Queue> queue_;  // the threads hold it too
  std::vector<std::thread> threads_;
};

}  // namespace ciuic::engine
