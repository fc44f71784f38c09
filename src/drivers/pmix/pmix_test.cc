// SPDX-License-Identifier: Apache-2.0
// pmix_test.cc: which libraries are taken for libpmix, and what is said where none is there.

#include "drivers/pmix/pmix.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ciuic::pmix {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(Pmix, AbsentLibraryListsWhatWasTried) {
  if (::dlopen("libpmix.so.2", RTLD_NOW | RTLD_NOLOAD) != nullptr) GTEST_SKIP() << "it is loaded";
  Result<Functions> functions = open_libpmix({"/nowhere/libpmix.so.2", "libciuic_no_such.so.2"});
  ASSERT_FALSE(functions.ok());
  EXPECT_EQ(functions.status().code(), StatusCode::kUnavailable);
  EXPECT_THAT(functions.status().message(),
              AllOf(HasSubstr("/nowhere/libpmix.so.2"), HasSubstr("libciuic_no_such.so.2"),
                    HasSubstr("apt-get install libpmix2"), HasSubstr("srun --mpi=pmi2")));
}

TEST(Pmix, AnotherLibraryIsRefused) {
  const Result<Functions> functions = open_libpmix({"libc.so.6"});
  EXPECT_EQ(functions.status().code(), StatusCode::kUnavailable);
  EXPECT_THAT(functions.status().message(), HasSubstr("libc.so.6 lacks functions of PMIx"));
}

TEST(Pmix, VersionsThatAreKnown) {
  for (const char* good :
       {"OpenPMIx 4.2.2 (PMIx Standard: 4.1, Stable ABI: 0.0, Provisional ABI: 0.0)",
        "OpenPMIx 5.0.11rc1", "PMIx 3.1.5", "OpenPMIx 6.0.0"}) {
    EXPECT_TRUE(check_version(good).ok()) << good;
  }
  for (const char* bad : {"PMIx 2.1.0", "OpenPMIx 7.0.0", "OpenPMIx", "", "4000000000000"}) {
    EXPECT_EQ(check_version(bad).code(), StatusCode::kUnavailable) << bad;
    EXPECT_THAT(check_version(bad).message(), HasSubstr("known are versions 3 to 6")) << bad;
  }
}

TEST(Pmix, AnInformationHoldsItsKey) {
  const Info info = true_info(kCollectData);
  EXPECT_STREQ(info.key, "pmix.collect");
  EXPECT_EQ(info.value.type, kBool);
  EXPECT_TRUE(info.value.data.flag);
}

}  // namespace
}  // namespace ciuic::pmix
