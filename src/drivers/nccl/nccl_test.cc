// SPDX-License-Identifier: Apache-2.0
// nccl_test.cc: which libraries are refused, and what NCCL's codes become. One that works is in
// tests/fakes.

#include "drivers/nccl/nccl.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ciuic::nccl {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(Nccl, SaysWhatWasTriedAndWhyItIsNone) {
  const std::string paths[] = {"/nonexistent/libnccl.so.2", "libm.so.6"};
  const Result<Library> library = find_nccl("libciuic_no_such_nccl.so.2", paths);
  ASSERT_EQ(library.status().code(), StatusCode::kUnavailable);
  EXPECT_THAT(library.status().message(),
              AllOf(HasSubstr("/nonexistent/libnccl.so.2: cannot open"),
                    HasSubstr("libm.so.6: it lacks ncclGetVersion"),
                    HasSubstr("pip install nvidia-nccl-cu13"), HasSubstr("CIUIC_NCCL_LIBRARY"),
                    testing::Not(HasSubstr("libciuic_no_such_nccl.so.2"))));
  EXPECT_THAT(find_nccl("libciuic_no_such_nccl.so.2", {}).status().message(),
              HasSubstr("libciuic_no_such_nccl.so.2: cannot open"));
}

TEST(Nccl, TakesNoSecondCopyBesideALoadedOne) {
  const Result<Library> library = find_nccl("libc.so.6", {});
  ASSERT_EQ(library.status().code(), StatusCode::kUnavailable);
  EXPECT_THAT(library.status().message(), HasSubstr("which is loaded: it lacks ncclGetVersion"));
}

TEST(Nccl, ReadsVersions) {
  EXPECT_EQ(version_text(22304), "2.23.4");
  EXPECT_EQ(version_text(23203), "2.32.3");
  EXPECT_EQ(version_text(2804), "2.8.4");
  EXPECT_EQ(version_text(30000), "3.0.0");
}

TEST(Nccl, AsksOldVersionsToBlockInWords) {
  EXPECT_EQ(default_config(21602).blocking, 1);
  EXPECT_EQ(default_config(21701).blocking, kUndefined);
  EXPECT_EQ(default_config(23203).size, 48u);
}

std::string last_error;
const char* describe(int code) {
  return code == kInvalidUsage ? "invalid usage (run with NCCL_DEBUG=WARN for details)" : nullptr;
}
const char* last(Comm) { return last_error.c_str(); }

TEST(Nccl, SaysWhatToDo) {
  Functions functions;
  functions.get_error_string = describe;
  functions.get_last_error = last;
  EXPECT_TRUE(error_of(functions, "ncclSend", kSuccess, nullptr).ok());
  EXPECT_TRUE(error_of(functions, "ncclSend", kInProgress, nullptr).ok());

  last_error = "Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 1000\n";
  const Status usage = error_of(functions, "ncclCommInitRankConfig", kInvalidUsage, nullptr);
  EXPECT_EQ(usage.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(usage.message(),
            "ncclCommInitRankConfig failed: invalid usage (5): Duplicate GPU detected : rank 0 and "
            "rank 1 both on CUDA device 1000. NCCL wants a GPU for each rank: set each rank's "
            "device before it joins, or take backend=\"native\"");

  last_error.clear();
  const Status other = error_of(functions, "ncclSend", kInvalidUsage, nullptr);
  EXPECT_EQ(other.message(),
            "ncclSend failed: invalid usage (5). NCCL_DEBUG=WARN shows the argument");
  EXPECT_EQ(error_of(functions, "ncclSend", kRemoteError, nullptr).code(), StatusCode::kPeerLost);
  EXPECT_EQ(error_of(functions, "ncclSend", kTimeout, nullptr).code(), StatusCode::kTimeout);
  EXPECT_THAT(error_of(functions, "ncclSend", 99, nullptr).message(),
              HasSubstr("unknown error (99)"));
}

TEST(Nccl, KnowsWhatCanBeReduced) {
  EXPECT_EQ(type_of(DataType::kFloat32, kOldestVersion), 7);
  EXPECT_EQ(type_of(DataType::kBFloat16, kOldestVersion), 9);
  EXPECT_EQ(type_of(DataType::kFloat8E4M3FN, 22304), std::nullopt);
  EXPECT_EQ(type_of(DataType::kFloat8E4M3FN, 22403), 10);
  EXPECT_EQ(type_of(DataType::kFloat8E5M2, 22403), 11);
  for (const DataType dtype : {DataType::kBool, DataType::kInt16, DataType::kUInt16,
                               DataType::kComplex64, DataType::kComplex128}) {
    EXPECT_EQ(type_of(dtype, 23203), std::nullopt) << name_of(dtype);
  }
  EXPECT_EQ(op_of(ReduceOp::kMin), kMin);
  EXPECT_EQ(op_of(ReduceOp::kMax), kMax);
  EXPECT_EQ(op_of(ReduceOp::kAvg), kAvg);
  EXPECT_EQ(op_of(ReduceOp::kProduct), kProd);
  EXPECT_EQ(op_of(ReduceOp::kBXor), std::nullopt);
}

}  // namespace
}  // namespace ciuic::nccl
