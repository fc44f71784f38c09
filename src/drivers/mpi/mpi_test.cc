// SPDX-License-Identifier: Apache-2.0
// mpi_test.cc: constants by name, and libraries that are none.

#include "drivers/mpi/mpi.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

namespace ciuic::mpi {
namespace {

using testing::HasSubstr;

TEST(Mpi, HasTheConstantsOfTheStandardAbi) {
  const Result<Constants> all = constants_from(abi_constants());
  ASSERT_TRUE(all.ok()) << all.status().message();
  EXPECT_EQ(all->comm_world, 0x101u);
  EXPECT_EQ(all->types[static_cast<size_t>(DataType::kFloat32)], 0x210u);
  EXPECT_EQ(all->types[static_cast<size_t>(DataType::kBFloat16)], 0u);
  EXPECT_EQ(all->ops[static_cast<size_t>(ReduceOp::kProduct)], 0x24u);
  EXPECT_EQ(all->ops[static_cast<size_t>(ReduceOp::kAvg)], 0u);
  EXPECT_EQ(all->any_tag, -2);
}

TEST(Mpi, NamesConstantsThatAreMissing) {
  Names names = abi_constants();
  names.erase("BYTE");
  names.erase("IN_PLACE");
  const Result<Constants> all = constants_from(names);
  ASSERT_EQ(all.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(all.status().message(), HasSubstr("lack BYTE, IN_PLACE"));
}

TEST(Mpi, RefusesAStatusThatCannotBe) {
  for (const auto& [name, value] :
       {std::pair("STATUS_BYTES", int64_t{1000}), std::pair("TAG_OFFSET", int64_t{30}),
        std::pair("HANDLE_BYTES", int64_t{2})}) {
    Names names = abi_constants();
    names[name] = value;
    EXPECT_EQ(constants_from(names).status().code(), StatusCode::kInvalidArgument) << name;
  }
}

TEST(Mpi, PacksHandlesAsWideAsTheLibraryHasThem) {
  Constants constants;
  const Handle handles[] = {0x44000000, 0x4c00010d};
  for (const size_t bytes : {sizeof(int32_t), sizeof(Handle)}) {
    constants.handle_bytes = bytes;
    const std::vector<std::byte> packed = pack_handles(constants, handles);
    ASSERT_EQ(packed.size(), 2 * bytes);
    for (size_t i = 0; i < 2; ++i) {
      Handle handle = 0;
      std::memcpy(&handle, packed.data() + i * bytes, bytes);
      EXPECT_EQ(handle, handles[i]);
    }
  }
}

TEST(Mpi, SaysWhatWasTriedAndWhyItIsNone) {
  const std::string paths[] = {"/nonexistent/libmpi_abi.so.1", "libc.so.6"};
  const Result<Library> library = open_mpi(paths, {});
  ASSERT_EQ(library.status().code(), StatusCode::kUnavailable);
  EXPECT_THAT(library.status().message(), HasSubstr("/nonexistent/libmpi_abi.so.1: cannot open"));
  EXPECT_THAT(library.status().message(), HasSubstr("libc.so.6: it lacks MPI_Initialized"));
  EXPECT_THAT(library.status().message(), HasSubstr("pip install mpich"));
}

}  // namespace
}  // namespace ciuic::mpi
