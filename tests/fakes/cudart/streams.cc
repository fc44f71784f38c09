// SPDX-License-Identifier: Apache-2.0
// streams.cc: the threads of streams, and what waits for what.

#include "cudart/streams.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

namespace ciuic::fake_cuda {

static const void* const kLegacyHandle = reinterpret_cast<const void*>(1);  // cudaStreamLegacy

Streams::Streams(int devices) {
  for (int device = 0; device < devices; ++device) {
    auto stream = std::make_shared<Stream>();
    stream->device = device;
    stream->is_legacy = true;
    legacy_.push_back(std::move(stream));
  }
}

std::shared_ptr<Stream> Streams::find(const void* handle, int device) {
  const std::lock_guard lock(mutex_);
  if (handle == nullptr || handle == kLegacyHandle) return legacy_[static_cast<size_t>(device)];
  if (handles_.count(handle) == 0) return nullptr;
  for (const auto& stream : streams_) {
    if (stream.get() == handle) return stream;
  }
  return nullptr;
}

void* Streams::create(int device, bool is_blocking) {
  auto stream = std::make_shared<Stream>();
  stream->device = device;
  stream->is_blocking = is_blocking;
  const std::lock_guard lock(mutex_);
  streams_.push_back(stream);
  handles_.insert(stream.get());
  return stream.get();
}

bool Streams::destroy(void* handle) {
  const std::lock_guard lock(mutex_);
  if (handles_.erase(handle) == 0) return false;
  const auto found = std::find_if(streams_.begin(), streams_.end(),
                                  [&](const auto& stream) { return stream.get() == handle; });
  (*found)->is_closed = true;
  if (!(*found)->has_thread) streams_.erase(found);
  changed_.notify_all();
  return true;
}

// What the stream has, and for the legacy one also what it waits for.
std::vector<Point> Streams::before(const Stream& stream) const {
  std::vector<Point> points;
  const auto add = [&](const std::shared_ptr<Stream>& other) {
    if (other->done < other->issued) points.push_back({other, other->issued});
  };
  if (stream.is_legacy) {
    for (const auto& other : streams_) {
      if (other->is_blocking && other->device == stream.device) add(other);
    }
  } else if (stream.is_blocking) {
    add(legacy_[static_cast<size_t>(stream.device)]);
  }
  return points;
}

Point Streams::push(const std::shared_ptr<Stream>& stream, Task task) {
  const std::lock_guard lock(mutex_);
  std::vector<Point> points = before(*stream);
  task.after.insert(task.after.end(), std::make_move_iterator(points.begin()),
                    std::make_move_iterator(points.end()));
  stream->tasks.push_back(std::move(task));
  const uint64_t ticket = ++stream->issued;
  if (!stream->has_thread) {
    stream->has_thread = true;
    std::thread([this, stream] { run(stream); }).detach();
  }
  changed_.notify_all();
  return {stream, ticket};
}

std::vector<Point> Streams::points_of(const std::shared_ptr<Stream>& stream) {
  const std::lock_guard lock(mutex_);
  std::vector<Point> points;
  if (stream->is_legacy) points = before(*stream);
  points.push_back({stream, stream->issued});
  return points;
}

std::vector<Point> Streams::points_of_device(int device) {
  const std::lock_guard lock(mutex_);
  const auto& legacy = legacy_[static_cast<size_t>(device)];
  std::vector<Point> points = {{legacy, legacy->issued}};
  for (const auto& stream : streams_) {
    if (stream->device == device) points.push_back({stream, stream->issued});
  }
  return points;
}

bool Streams::all_done(const std::vector<Point>& points) {
  return std::all_of(points.begin(), points.end(), [](const Point& point) {
    return point.stream == nullptr || point.stream->done >= point.ticket;
  });
}

bool Streams::is_done(const std::vector<Point>& points) {
  const std::lock_guard lock(mutex_);
  return all_done(points);
}

void Streams::wait(const std::vector<Point>& points) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return all_done(points); });
}

void Streams::set_capturing(const std::shared_ptr<Stream>& stream, int status) {
  const std::lock_guard lock(mutex_);
  stream->capturing = status;
}

int Streams::capturing(const std::shared_ptr<Stream>& stream) {
  const std::lock_guard lock(mutex_);
  return stream->capturing;
}

// The body of a stream's thread.
void Streams::run(const std::shared_ptr<Stream>& stream) {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return !stream->tasks.empty() || stream->is_closed; });
    if (stream->tasks.empty()) break;
    {
      const Task task = std::move(stream->tasks.front());
      stream->tasks.pop_front();
      changed_.wait(lock, [&] { return all_done(task.after); });
      lock.unlock();
      if (task.delay_us > 0) {
        std::this_thread::sleep_for(std::chrono::microseconds(task.delay_us));
      }
      if (task.run) task.run();
    }  // what the task holds is freed before it counts as done
    lock.lock();
    ++stream->done;
    changed_.notify_all();
  }
  std::erase(streams_, stream);
}

}  // namespace ciuic::fake_cuda
