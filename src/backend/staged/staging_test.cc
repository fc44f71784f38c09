// SPDX-License-Identifier: Apache-2.0
// staging_test.cc: what is copied when, over a CUDA whose streams run when they are told to, and a
// backend whose operations end when they are told to.

#include "backend/staged/staging.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>

namespace ciuic::backend {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Work of all streams, in the order in which it was put there.
struct FakeCuda {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::function<void()>> queued;
  std::vector<std::string> done;
  std::set<void*> pinned;
  int fails_with = cuda::kSuccess;  // of copies
  int handles = 0;
  int waited_on_as = 0;  // the caller's device when a null stream was last made to wait

  int put(std::function<void()> work) {
    const std::lock_guard<std::mutex> lock(mutex);
    queued.push_back(std::move(work));
    changed.notify_all();
    return cuda::kSuccess;
  }

  // Runs what there is, once there is something.
  void run() {
    std::vector<std::function<void()>> works;
    {
      std::unique_lock<std::mutex> lock(mutex);
      changed.wait(lock, [this] { return !queued.empty(); });
      works.swap(queued);
    }
    for (const auto& work : works) work();
  }
  void note(const std::string& what) {
    const std::lock_guard<std::mutex> lock(mutex);
    done.push_back(what);
  }
  void* handle() { return reinterpret_cast<void*>(static_cast<intptr_t>(++handles)); }
};

FakeCuda* fake = nullptr;
thread_local int current_device = 0;

cuda::Functions functions() {
  cuda::Functions all;
  all.get_error_string = [](int) { return "words of CUDA"; };
  all.get_device = [](int* device) {
    *device = current_device;
    return 0;
  };
  all.set_device = [](int device) {
    current_device = device;
    return 0;
  };
  all.host_alloc = [](void** memory, size_t bytes, unsigned) {
    *memory = std::malloc(bytes);
    fake->pinned.insert(*memory);
    return 0;
  };
  all.free_host = [](void* memory) {
    fake->pinned.erase(memory);
    std::free(memory);
    return 0;
  };
  all.stream_create_with_flags = [](void** stream, unsigned) {
    *stream = fake->handle();
    return 0;
  };
  all.stream_destroy = [](void*) { return 0; };
  all.stream_synchronize = [](void*) { return 0; };
  all.stream_wait_event = [](void* stream, void*, unsigned) {
    if (stream == nullptr) fake->waited_on_as = current_device;
    return 0;
  };
  all.stream_is_capturing = [](void*, int* status) {
    *status = 0;
    return 0;
  };
  all.event_create_with_flags = [](void** event, unsigned) {
    *event = fake->handle();
    return 0;
  };
  all.event_destroy = [](void*) { return 0; };
  all.event_record = [](void*, void*) { return 0; };
  all.event_query = [](void*) { return 0; };
  all.memcpy_async = [](void* target, const void* source, size_t bytes, int kind, void*) {
    if (fake->fails_with != cuda::kSuccess) return fake->fails_with;
    return fake->put([=] {
      std::memcpy(target, source, bytes);
      fake->note(kind == cuda::kDeviceToHost ? "out" : "in");
    });
  };
  all.launch_host_func = [](void*, cuda::HostFunction* function, void* data) {
    return fake->put([=] { function(data); });
  };
  return all;
}

// Waiting callers hear of every wake().
class FakeDriver final : public engine::WorkDriver {
 public:
  bool wait(engine::WorkState* work, TimeNs /*deadline*/) override {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [work] { return work->done(); });
    return true;
  }
  void nudge() override {}
  void complete(std::function<void()> fn) override { fn(); }
  void wake() override {
    const std::lock_guard<std::mutex> lock(mutex_);
    changed_.notify_all();
  }
  bool is_of_parent() const override { return false; }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
};

class FakeHost final : public HostBackend {
 public:
  struct Given {
    Call call;
    std::shared_ptr<const engine::Gate> gate;
    engine::WorkState* work;
  };

  ~FakeHost() override {
    for (const Given& each : given) each.work->release();
  }

  void end(size_t number, const Status& status) { given[number].work->finish(status); }

  Result<Work> submit_when(std::span<const Call> calls, std::shared_ptr<const engine::Gate> gate,
                           const OperationOptions& /*options*/) override {
    auto* work = new engine::WorkState(driver_);
    work->retain();
    given.push_back({calls[0], std::move(gate), work});
    return Work(work);
  }
  Status check(const Call& /*call*/) override { return {}; }
  bool reaches_gpu(const Call& /*call*/) const override { return is_straight; }
  std::shared_ptr<engine::WorkDriver> driver() override { return driver_; }
  Capabilities capabilities() const override { return {.name = "fake", .can_abort = can_abort}; }
  void report(const engine::Cause& cause) override { causes.push_back(cause.status); }

  Result<Work> submit(std::span<const Call>, const OperationOptions&) override { return Work(); }
  Result<std::unique_ptr<Prepared>> prepare(std::span<const Call>,
                                            const OperationOptions&) override {
    return std::unique_ptr<Prepared>();
  }
  Status add_plan(const std::string&) override { return {}; }
  void progress() override {}
  Status close() override { return {}; }
  Status status() override { return {}; }
  size_t staging_bytes() override { return 0; }
  size_t link_bytes() override { return 0; }
  void end(const Status&) override {}
  void mark_gone(int, const Status&) override {}
  engine::CallRecord call_record(uint32_t) override { return {}; }
  engine::GroupProgress progress_of_group() override { return {}; }
  bool needs(uint32_t, int) override { return false; }

  std::vector<Given> given;
  std::vector<Status> causes;
  bool is_straight = false;
  bool can_abort = true;

 private:
  std::shared_ptr<FakeDriver> driver_ = std::make_shared<FakeDriver>();
};

class StagingTest : public testing::Test {
 protected:
  StagingTest() { fake = &cuda_; }

  // Slots of 64 KiB.
  void make() { staging_.emplace(options()); }
  Staging::Options options() { return {&functions_, &host_, 0, 2, size_t{256} << 10}; }

  Result<Work> all_reduce(std::vector<float>* x, int device = 0) {
    const MutableBuffer buffer{x->data(), static_cast<int64_t>(x->size()), DataType::kFloat32,
                               Device{DeviceKind::kCuda, device}};
    const Call call = Call::all_reduce(buffer, buffer, ReduceOp::kSum);
    return staging_->submit({&call, 1}, buffer.device, {});
  }

  float* slot(size_t number) { return static_cast<float*>(host_.given[number].call.output.data); }
  bool is_open(size_t number) { return host_.given[number].gate->is_open(); }

  FakeCuda cuda_;
  const cuda::Functions functions_ = functions();
  FakeHost host_;
  std::optional<Staging> staging_;
};

TEST_F(StagingTest, AnOperationStartsWhenItsInputIsOut) {
  make();
  std::vector<float> x(100, 3);
  Result<Work> work = all_reduce(&x);
  ASSERT_TRUE(work.ok());
  ASSERT_EQ(host_.given.size(), 1U);
  EXPECT_FALSE(is_open(0));
  EXPECT_EQ(host_.given[0].call.output.device.kind, DeviceKind::kCpu);
  cuda_.run();
  EXPECT_TRUE(is_open(0));
  EXPECT_EQ(slot(0)[99], 3);
  slot(0)[99] = 5;
  host_.end(0, Status());
  EXPECT_TRUE(work->wait_on({}).ok());  // the copy in is in its stream,
  EXPECT_EQ(x[99], 3);                  // and still to come
  EXPECT_FALSE(work->done());
  cuda_.run();
  EXPECT_EQ(x[99], 5);
  EXPECT_TRUE(work->wait().ok());
  EXPECT_THAT(cuda_.done, ElementsAre("out", "in"));
}

TEST_F(StagingTest, TheDefaultStreamOfTheTensorsDeviceWaits) {
  make();
  std::vector<float> x(10, 1);
  Result<Work> work = all_reduce(&x, 1);
  ASSERT_TRUE(work.ok());
  cuda_.run();
  host_.end(0, Status());
  EXPECT_TRUE(work->wait_on({.handle = nullptr, .device_index = 1}).ok());
  EXPECT_EQ(cuda_.waited_on_as, 1);
  cuda_.waited_on_as = 0;
  EXPECT_TRUE(work->wait_on({}).ok());  // who names no device means the tensors'
  EXPECT_EQ(cuda_.waited_on_as, 1);
  EXPECT_EQ(current_device, 0);
  cuda_.run();
  EXPECT_TRUE(work->wait().ok());
}

TEST_F(StagingTest, PiecesWaitForTheirSlot) {
  make();
  std::vector<float> x(6 * 16 * 1024, 1);
  Result<Work> work = all_reduce(&x);
  ASSERT_TRUE(work.ok());
  ASSERT_EQ(host_.given.size(), 7U);  // all are numbered at the call
  cuda_.run();
  EXPECT_TRUE(is_open(3));
  EXPECT_FALSE(is_open(4));  // its slot is that of the first one
  EXPECT_EQ(slot(4), slot(0));
  host_.end(0, Status());
  while (!is_open(4)) cuda_.run();  // the copy in, and the copy out behind it
  for (size_t i = 1; i < host_.given.size(); ++i) host_.end(i, Status());
  EXPECT_TRUE(work->wait_on({}).ok());
  cuda_.run();
  EXPECT_TRUE(work->wait().ok());
}

TEST_F(StagingTest, AnErrorOfTheHostIsTheWorksAndNothingIsCopiedIn) {
  make();
  std::vector<float> x(10, 1);
  Result<Work> work = all_reduce(&x);
  ASSERT_TRUE(work.ok());
  cuda_.run();
  host_.end(0, {StatusCode::kPeerLost, "rank 1 is gone"});
  EXPECT_EQ(work->wait_on({}).code(), StatusCode::kPeerLost);
  EXPECT_EQ(work->wait().code(), StatusCode::kPeerLost);
  EXPECT_THAT(cuda_.done, ElementsAre("out"));
  staging_.reset();
  EXPECT_TRUE(cuda_.pinned.empty());
}

TEST_F(StagingTest, WhatTheHostMayStillWriteToIsNotFreed) {
  host_.can_abort = false;
  make();
  std::vector<float> x(10, 1);
  Result<Work> work = all_reduce(&x);
  ASSERT_TRUE(work.ok());
  cuda_.run();
  host_.end(0, {StatusCode::kTimeout, "too late"});
  EXPECT_EQ(work->wait().code(), StatusCode::kTimeout);
  staging_.reset();
  EXPECT_EQ(cuda_.pinned.size(), 1U);
}

TEST_F(StagingTest, AnErrorOfTheDeviceEndsTheGroup) {
  make();
  cuda_.fails_with = 700;
  std::vector<float> x(10, 1);
  Result<Work> work = all_reduce(&x);
  ASSERT_TRUE(work.ok());  // the other ranks have numbered it, too
  ASSERT_EQ(host_.causes.size(), 1U);
  EXPECT_THAT(host_.causes[0].message(), HasSubstr("words of CUDA (700)"));
  host_.end(0, host_.causes[0]);
  EXPECT_EQ(work->wait().code(), StatusCode::kSystem);
}

TEST_F(StagingTest, WhatTheHostReachesGoesStraightInItsTurn) {
  host_.is_straight = true;
  make();
  std::vector<float> x(100'000, 3);
  Result<Work> work = all_reduce(&x);
  ASSERT_TRUE(work.ok());
  ASSERT_EQ(host_.given.size(), 1U);
  EXPECT_EQ(slot(0), x.data());
  EXPECT_FALSE(is_open(0));  // the caller's stream comes first
  cuda_.run();
  EXPECT_TRUE(is_open(0));
  host_.end(0, Status());
  EXPECT_TRUE(work->wait_on({}).ok());
  EXPECT_TRUE(cuda_.done.empty());
  EXPECT_TRUE(cuda_.pinned.empty());
  cuda_.run();
  EXPECT_TRUE(work->wait().ok());
}

}  // namespace
}  // namespace ciuic::backend
