// SPDX-License-Identifier: Apache-2.0
// cuda_test.cc: what is said where CUDA cannot be used, and what its codes become. A runtime that
// works is in tests/fakes.

#include "drivers/cuda/cuda.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace ciuic::cuda {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(Cuda, SaysWhatWasTriedWhereThereIsNoRuntime) {
  const char* names[] = {"libciuic_no_such_cudart.so.13"};
  const Result<Library> library = find_cuda("/nonexistent/libcudart.so.12", names);
  ASSERT_EQ(library.status().code(), StatusCode::kUnavailable);
  EXPECT_THAT(library.status().message(),
              AllOf(HasSubstr("/nonexistent/libcudart.so.12: cannot open"),
                    HasSubstr("pip install nvidia-cuda-runtime"), HasSubstr("CIUIC_CUDA_LIBRARY"),
                    testing::Not(HasSubstr("libciuic_no_such_cudart.so.13"))));
  EXPECT_THAT(find_cuda("", names).status().message(),
              HasSubstr("libciuic_no_such_cudart.so.13: cannot open"));
}

TEST(Cuda, RefusesWhatIsNoRuntimeAlsoWhereItIsLoaded) {
  const char* names[] = {"libc.so.6"};
  const Result<Library> library = find_cuda("", names);
  ASSERT_EQ(library.status().code(), StatusCode::kUnavailable);
  EXPECT_THAT(library.status().message(), HasSubstr("libc.so.6: it lacks cudaRuntimeGetVersion"));
}

const char* describe(int code) { return code == kOutOfMemory ? "out of\nmemory" : nullptr; }

TEST(Cuda, MakesAStatusOfACode) {
  Functions functions;
  functions.get_error_string = describe;
  EXPECT_TRUE(error_of(functions, "cudaMalloc", kSuccess).ok());
  const Status memory = error_of(functions, "cudaMalloc", kOutOfMemory);
  EXPECT_EQ(memory.code(), StatusCode::kResource);
  EXPECT_EQ(memory.message(), "cudaMalloc failed: out of memory (2)");
  const Status other = error_of(functions, "cudaEventRecord", 400);
  EXPECT_EQ(other.code(), StatusCode::kSystem);
  EXPECT_EQ(other.message(), "cudaEventRecord failed: unknown error (400)");
}

int device_of_thread = 0;
std::vector<int> devices_set;

int get_device(int* device) {
  *device = device_of_thread;
  return kSuccess;
}

int set_device(int device) {
  if (device > 3) return 101;
  device_of_thread = device;
  devices_set.push_back(device);
  return kSuccess;
}

TEST(Cuda, DeviceScopeGoesBackAndCallsOnlyWhatItMust) {
  Functions functions;
  functions.get_device = get_device;
  functions.set_device = set_device;
  device_of_thread = 1;
  devices_set.clear();
  {
    const DeviceScope other(functions, 3);
    EXPECT_EQ(device_of_thread, 3);
    const DeviceScope same(functions, 3);
    const DeviceScope none(functions, 9);  // there is none; the thread keeps its device
    EXPECT_EQ(device_of_thread, 3);
  }
  EXPECT_THAT(devices_set, ElementsAre(3, 1));
}

}  // namespace
}  // namespace ciuic::cuda
