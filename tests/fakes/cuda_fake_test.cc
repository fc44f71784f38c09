// SPDX-License-Identifier: Apache-2.0
// cuda_fake_test.cc: the fake libcudart through the driver: what runs when, and what is refused.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <future>
#include <vector>

#include "cudart/fake_cuda.h"
#include "drivers/cuda/cuda.h"

namespace ciuic::cuda {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

constexpr size_t kBytes = 5000;

// Read by the fake when the first function is called.
const int kDevices = ::setenv("FAKE_CUDA_DEVICES", "2", 1);
const int kMemory = ::setenv("FAKE_CUDA_MEMORY", "1000000", 1);

// Holds a stream until it is opened.
class Gate {
 public:
  explicit Gate(Stream stream) {
    EXPECT_EQ(ciuic_fake_enqueue(
                  stream, [](void* gate) { static_cast<Gate*>(gate)->opened_.get_future().wait(); },
                  this),
              kSuccess);
  }
  void open() { opened_.set_value(); }

 private:
  std::promise<void> opened_;
};

class CudaFake : public testing::Test {
 protected:
  void SetUp() override {
    const Result<Library> library = find_cuda(CIUIC_FAKE_CUDART, {});
    ASSERT_TRUE(library.ok()) << library.status().message();
    call_ = library->functions;
    EXPECT_EQ(library->devices, 2);
    EXPECT_EQ(library->runtime_version, 13000);
    ASSERT_EQ(call_.malloc(&device_, kBytes), kSuccess);
    void* pinned = nullptr;
    ASSERT_EQ(call_.host_alloc(&pinned, kBytes, kHostAllocPortable), kSuccess);
    pinned_ = static_cast<unsigned char*>(pinned);
    ASSERT_EQ(call_.stream_create_with_flags(&stream_, kNonBlocking), kSuccess);
  }

  void TearDown() override {
    ciuic_fake_drop("");
    EXPECT_EQ(call_.stream_synchronize(stream_), kSuccess);
    EXPECT_EQ(call_.stream_destroy(stream_), kSuccess);
    EXPECT_EQ(call_.free_host(pinned_), kSuccess);
    EXPECT_EQ(call_.free(device_), kSuccess);
  }

  Event record(Stream stream) {
    Event event = nullptr;
    EXPECT_EQ(call_.event_create_with_flags(&event, kDisableTiming), kSuccess);
    EXPECT_EQ(call_.event_record(event, stream), kSuccess);
    return event;
  }

  std::vector<int> pinned() const { return {pinned_, pinned_ + kBytes}; }
  std::vector<int> on_device() const {
    const auto* bytes = static_cast<const unsigned char*>(ciuic_fake_host_of(device_));
    return {bytes, bytes + kBytes};
  }

  Functions call_;
  void* device_ = nullptr;
  unsigned char* pinned_ = nullptr;
  Stream stream_ = nullptr;
};

using CudaFakeDeathTest = CudaFake;

TEST_F(CudaFakeDeathTest, HostCodeThatReadsDeviceMemoryDies) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH(
      {
        const volatile unsigned char* bytes = static_cast<unsigned char*>(device_);
        [[maybe_unused]] const int byte = bytes[1];
        std::_Exit(0);
      },
      "");
  EXPECT_EQ(ciuic_fake_host_of(pinned_), nullptr);
  EXPECT_EQ(ciuic_fake_room(static_cast<char*>(device_) + 100), kBytes - 100);
}

TEST_F(CudaFake, WorkRunsAfterTheCallHasReturned) {
  std::memset(pinned_, 1, kBytes);
  Gate gate(stream_);
  ASSERT_EQ(ciuic_fake_fill(stream_, device_, kBytes, 7, 0), kSuccess);
  ASSERT_EQ(call_.memcpy_async(pinned_, device_, kBytes, kDeviceToHost, stream_), kSuccess);
  const Event event = record(stream_);
  EXPECT_EQ(call_.event_query(event), kNotReady);
  EXPECT_EQ(call_.get_last_error(), kNotReady);
  EXPECT_EQ(call_.get_last_error(), kSuccess);
  EXPECT_THAT(pinned(), Each(1));  // who reads without waiting gets what was there
  EXPECT_THAT(on_device(), Each(0xCD));
  gate.open();
  EXPECT_EQ(call_.event_synchronize(event), kSuccess);
  EXPECT_EQ(call_.event_query(event), kSuccess);
  EXPECT_THAT(pinned(), Each(7));
  EXPECT_EQ(call_.event_destroy(event), kSuccess);
}

TEST_F(CudaFake, EventsOrderStreams) {
  Stream other = nullptr;
  ASSERT_EQ(call_.stream_create_with_flags(&other, kNonBlocking), kSuccess);
  Gate gate(stream_);
  const std::vector<unsigned char> bytes(kBytes, 9);
  ASSERT_EQ(ciuic_fake_store(stream_, device_, bytes.data(), kBytes, 1000), kSuccess);
  const Event event = record(stream_);
  ASSERT_EQ(call_.stream_wait_event(other, event, 0), kSuccess);
  ASSERT_EQ(call_.event_destroy(event), kSuccess);  // the wait stays
  ASSERT_EQ(call_.memcpy_async(pinned_, device_, kBytes, kDeviceToHost, other), kSuccess);
  ASSERT_EQ(call_.stream_destroy(stream_), kSuccess);  // its work is still done
  gate.open();
  EXPECT_EQ(call_.stream_synchronize(other), kSuccess);
  EXPECT_THAT(pinned(), Each(9));
  stream_ = other;
}

TEST_F(CudaFake, AForgottenSynchronisationIsSeen) {
  ciuic_fake_drop("cudaStreamWaitEvent,cudaDeviceSynchronize");
  Stream other = nullptr;
  ASSERT_EQ(call_.stream_create_with_flags(&other, kNonBlocking), kSuccess);
  Gate gate(stream_);
  ASSERT_EQ(ciuic_fake_fill(stream_, device_, kBytes, 9, 0), kSuccess);
  const Event event = record(stream_);
  const int64_t calls = ciuic_fake_calls("cudaStreamWaitEvent");
  EXPECT_EQ(call_.stream_wait_event(other, event, 0), kSuccess);
  EXPECT_EQ(ciuic_fake_calls("cudaStreamWaitEvent"), calls + 1);
  ASSERT_EQ(call_.memcpy_async(pinned_, device_, kBytes, kDeviceToHost, other), kSuccess);
  EXPECT_EQ(call_.stream_synchronize(other), kSuccess);  // comes back before the gate opens
  EXPECT_THAT(pinned(), Each(0xCD));
  gate.open();
  EXPECT_EQ(call_.event_destroy(event), kSuccess);
  EXPECT_EQ(call_.stream_destroy(other), kSuccess);
}

TEST_F(CudaFake, TheLegacyStreamWaitsForBlockingStreamsAndTheyForIt) {
  Stream before = nullptr;
  Stream after = nullptr;
  ASSERT_EQ(call_.stream_create_with_flags(&before, 0), kSuccess);
  ASSERT_EQ(call_.stream_create_with_flags(&after, 0), kSuccess);
  Gate gate(before);
  ASSERT_EQ(ciuic_fake_fill(before, device_, kBytes, 1, 0), kSuccess);
  ASSERT_EQ(ciuic_fake_fill(nullptr, device_, kBytes, 2, 0), kSuccess);
  ASSERT_EQ(call_.memcpy_async(pinned_, device_, kBytes, kDeviceToHost, after), kSuccess);
  const Event default_event = record(nullptr);
  const Event event = record(after);

  // A non-blocking stream goes its own way.
  ASSERT_EQ(ciuic_fake_fill(stream_, device_, kBytes, 3, 0), kSuccess);
  EXPECT_EQ(call_.stream_synchronize(stream_), kSuccess);
  EXPECT_THAT(on_device(), Each(3));
  EXPECT_EQ(call_.event_query(default_event), kNotReady);
  EXPECT_EQ(call_.event_query(event), kNotReady);
  gate.open();
  EXPECT_EQ(call_.event_synchronize(event), kSuccess);
  EXPECT_EQ(call_.event_query(default_event), kSuccess);
  EXPECT_THAT(pinned(), Each(2));
  for (const Event each : {default_event, event}) EXPECT_EQ(call_.event_destroy(each), kSuccess);
  for (const Stream each : {before, after}) EXPECT_EQ(call_.stream_destroy(each), kSuccess);
}

TEST_F(CudaFake, HostFunctionsMustNotCallCuda) {
  struct Seen {
    Functions call;
    int code = -1;
  } seen = {.call = call_};
  const auto function = [](void* data) {
    auto* all = static_cast<Seen*>(data);
    int device = 0;
    all->code = all->call.get_device(&device);
  };
  ASSERT_EQ(call_.launch_host_func(stream_, function, &seen), kSuccess);
  EXPECT_EQ(call_.stream_synchronize(stream_), kSuccess);
  EXPECT_EQ(seen.code, 800);
  EXPECT_EQ(error_of(call_, "cudaGetDevice", seen.code).message(),
            "cudaGetDevice failed: operation not permitted (800)");
}

TEST_F(CudaFake, CopiesCheckWhatTheirPointersAre) {
  constexpr int kInvalidValue = 1;
  const auto copy = [&](void* target, const void* source, size_t bytes, int kind) {
    return call_.memcpy_async(target, source, bytes, kind, stream_);
  };
  EXPECT_EQ(copy(device_, pinned_, kBytes, kDeviceToHost), kInvalidValue);
  EXPECT_EQ(copy(pinned_, device_, kBytes, kHostToDevice), kInvalidValue);
  EXPECT_EQ(copy(pinned_, device_, kBytes, kDeviceToDevice), kInvalidValue);
  EXPECT_EQ(copy(pinned_, device_, kBytes + 1, kDeviceToHost), kInvalidValue);
  EXPECT_EQ(copy(static_cast<char*>(device_) + 1, pinned_, kBytes, kHostToDevice), kInvalidValue);
  EXPECT_EQ(copy(pinned_, device_, kBytes, 7), 21);
  EXPECT_EQ(call_.memcpy_async(pinned_, device_, 1, kDeviceToHost, device_), 400);
  EXPECT_EQ(copy(pinned_, device_, kBytes, kDeviceToHost), kSuccess);
  EXPECT_EQ(call_.free(pinned_), kInvalidValue);
  EXPECT_EQ(call_.free(static_cast<char*>(device_) + 1), kInvalidValue);
}

TEST_F(CudaFake, PageableMemoryIsReadAtTheCallAndWrittenBeforeItReturns) {
  std::vector<unsigned char> bytes(kBytes, 5);
  Gate gate(stream_);
  ASSERT_EQ(call_.memcpy_async(device_, bytes.data(), kBytes, kHostToDevice, stream_), kSuccess);
  std::fill(bytes.begin(), bytes.end(), 6);
  gate.open();
  ASSERT_EQ(call_.memcpy_async(bytes.data(), device_, kBytes, kDeviceToHost, stream_), kSuccess);
  EXPECT_THAT(bytes, Each(5));
}

TEST_F(CudaFake, TellsWhatPointersAre) {
  Attributes attributes;
  ASSERT_EQ(call_.pointer_get_attributes(&attributes, static_cast<char*>(device_) + 3), kSuccess);
  EXPECT_EQ(attributes.type, kMemoryIsDevice);
  EXPECT_EQ(attributes.device, 0);
  EXPECT_EQ(attributes.host_pointer, nullptr);
  ASSERT_EQ(call_.pointer_get_attributes(&attributes, pinned_), kSuccess);
  EXPECT_EQ(attributes.type, 1);
  EXPECT_EQ(attributes.host_pointer, pinned_);
  ASSERT_EQ(call_.pointer_get_attributes(&attributes, &attributes), kSuccess);
  EXPECT_EQ(attributes.type, 0);
  EXPECT_EQ(attributes.device_pointer, nullptr);
}

TEST_F(CudaFake, DevicesHaveStreamsMemoryAndPlacesOfTheirOwn) {
  void* far = nullptr;
  Stream stream = nullptr;
  {
    const DeviceScope other(call_, 1);
    ASSERT_EQ(call_.malloc(&far, kBytes), kSuccess);
    ASSERT_EQ(call_.stream_create_with_flags(&stream, 0), kSuccess);
    EXPECT_EQ(ciuic_fake_stream_device(nullptr), 1);
  }
  EXPECT_EQ(ciuic_fake_stream_device(nullptr), 0);
  EXPECT_EQ(ciuic_fake_stream_device(stream), 1);
  EXPECT_EQ(ciuic_fake_stream_device(&far), -1);
  Attributes attributes;
  ASSERT_EQ(call_.pointer_get_attributes(&attributes, far), kSuccess);
  EXPECT_EQ(attributes.device, 1);
  Event event = nullptr;
  ASSERT_EQ(call_.event_create_with_flags(&event, kDisableTiming), kSuccess);
  EXPECT_EQ(call_.event_record(event, stream), 400);  // it is of device 0
  EXPECT_EQ(call_.event_destroy(event), kSuccess);
  char first[16];
  char second[16];
  ASSERT_EQ(call_.device_get_pci_bus_id(first, sizeof first, 0), kSuccess);
  ASSERT_EQ(call_.device_get_pci_bus_id(second, sizeof second, 1), kSuccess);
  EXPECT_STRNE(first, second);
  EXPECT_EQ(call_.set_device(2), 101);
  EXPECT_EQ(call_.stream_destroy(stream), kSuccess);
  EXPECT_EQ(call_.free(far), kSuccess);
}

TEST_F(CudaFake, MemoryEnds) {
  void* memory = nullptr;
  const int code = call_.malloc(&memory, 999'000);
  const Status status = error_of(call_, "cudaMalloc", code);
  EXPECT_EQ(status.code(), StatusCode::kResource);
  EXPECT_EQ(status.message(), "cudaMalloc failed: out of memory (2)");
  ASSERT_EQ(call_.malloc(&memory, 900'000), kSuccess);  // and what is freed can be had again
  EXPECT_EQ(call_.free(memory), kSuccess);
  ASSERT_EQ(call_.malloc(&memory, 900'000), kSuccess);
  EXPECT_EQ(call_.free(memory), kSuccess);
}

TEST_F(CudaFake, FreesMemoryInTheOrderOfTheStream) {
  void* memory = nullptr;
  ASSERT_EQ(call_.malloc_async(&memory, kBytes, stream_), kSuccess);
  Gate gate(stream_);
  ASSERT_EQ(ciuic_fake_fill(stream_, memory, kBytes, 4, 0), kSuccess);
  ASSERT_EQ(call_.memcpy_async(pinned_, memory, kBytes, kDeviceToHost, stream_), kSuccess);
  ASSERT_EQ(call_.free_async(memory, stream_), kSuccess);
  EXPECT_EQ(ciuic_fake_room(memory), kBytes);
  gate.open();
  EXPECT_EQ(call_.stream_synchronize(stream_), kSuccess);
  EXPECT_THAT(pinned(), Each(4));
  EXPECT_EQ(ciuic_fake_room(memory), 0u);
  EXPECT_EQ(call_.free_async(pinned_, stream_), 1);
}

TEST_F(CudaFake, TellsWhetherAStreamIsCaptured) {
  int status = -1;
  ASSERT_EQ(call_.stream_is_capturing(stream_, &status), kSuccess);
  EXPECT_EQ(status, 0);
  ASSERT_EQ(ciuic_fake_set_capturing(stream_, 1), kSuccess);
  ASSERT_EQ(call_.stream_is_capturing(stream_, &status), kSuccess);
  EXPECT_EQ(status, 1);
}

TEST_F(CudaFake, DoesNotOutliveAFork) {
  const pid_t child = ::fork();
  if (child == 0) {
    int device = 0;
    ::_exit(call_.get_device(&device));
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 3);
}

// What open_cuda() says in a process with that variable.
[[noreturn]] void say_why_not(const char* name, const char* value) {
  ::setenv(name, value, 1);
  const Result<const Library*> library = open_cuda(CIUIC_FAKE_CUDART);
  const Result<const Library*> again = open_cuda("/nonexistent");
  if (library.status().code() == StatusCode::kUnavailable &&
      again.status().message() == library.status().message()) {
    std::fputs(library.status().message().c_str(), stderr);
  }
  std::_Exit(library.ok() ? 0 : 1);
}

TEST(CudaDeathTest, SaysWhetherTheDriverOrTheDeviceIsMissing) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto one = testing::ExitedWithCode(1);
  EXPECT_EXIT(say_why_not("FAKE_CUDA_DRIVER", "0"), one,
              AllOf(HasSubstr("libcudart.so.13 (13.0) is there, but no driver"),
                    HasSubstr("CUDA 13 or later")));
  EXPECT_EXIT(say_why_not("FAKE_CUDA_DRIVER", "12040"), one,
              AllOf(HasSubstr("wants a newer driver than the one that is there, which has CUDA "
                              "12.4"),
                    HasSubstr("nvidia-cuda-runtime-cu12")));
  EXPECT_EXIT(say_why_not("FAKE_CUDA_DEVICES", "0"), one,
              AllOf(HasSubstr("but no GPU"), HasSubstr("CUDA_VISIBLE_DEVICES")));
  EXPECT_EXIT(say_why_not("CUDA_VISIBLE_DEVICES", ""), one, HasSubstr("but no GPU"));
  EXPECT_EXIT(say_why_not("CUDA_VISIBLE_DEVICES", "1"), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace ciuic::cuda
