// SPDX-License-Identifier: Apache-2.0
// streams.h: streams as queues with a thread each, where work really runs later.
//
// A Point is a place in a stream; it is done when all that was pushed up to it is. The legacy
// default stream of a device waits for the blocking streams of it, as far as they are filled when
// something is pushed to it, and they for it. Any thread; threads are never joined, as the process
// may end with work that hangs.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

namespace ciuic::fake_cuda {

struct Stream;

struct Point {
  std::shared_ptr<Stream> stream;  // null: nothing to wait for
  uint64_t ticket = 0;
};

struct Task {
  std::function<void()> run;  // may be empty
  int64_t delay_us = 0;
  std::vector<Point> after;
};

// All under the mutex of Streams, save what never changes.
struct Stream {
  int device = 0;
  bool is_legacy = false;
  bool is_blocking = true;
  bool has_thread = false;
  bool is_closed = false;
  int capturing = 0;
  uint64_t issued = 0;
  uint64_t done = 0;
  std::deque<Task> tasks;
};

class Streams {
 public:
  explicit Streams(int devices);

  // The one of a handle: null is the legacy stream of `device`. Null: there is none.
  std::shared_ptr<Stream> find(const void* handle, int device);
  void* create(int device, bool is_blocking);
  bool destroy(void* handle);  // what it has still runs

  // Runs `task` after what is there.
  Point push(const std::shared_ptr<Stream>& stream, Task task);
  // What is there now; for the legacy stream that is also what it would wait for.
  std::vector<Point> points_of(const std::shared_ptr<Stream>& stream);
  std::vector<Point> points_of_device(int device);

  bool is_done(const std::vector<Point>& points);
  void wait(const std::vector<Point>& points);

  void set_capturing(const std::shared_ptr<Stream>& stream, int status);
  int capturing(const std::shared_ptr<Stream>& stream);

 private:
  static bool all_done(const std::vector<Point>& points);
  std::vector<Point> before(const Stream& stream) const;
  void run(const std::shared_ptr<Stream>& stream);

  std::mutex mutex_;
  std::condition_variable changed_;               // a queue, or what is done
  std::vector<std::shared_ptr<Stream>> legacy_;   // by device
  std::vector<std::shared_ptr<Stream>> streams_;  // the others, also closed ones with work
  std::set<const void*> handles_;                 // those that may be used
};

}  // namespace ciuic::fake_cuda
