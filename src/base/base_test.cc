// SPDX-License-Identifier: Apache-2.0
// base_test.cc: the table of dtypes, byte counts as text, JSON strings, deadlines, names,
// assertions.

#include <gtest/gtest.h>

#include <cstdio>
#include <iterator>
#include <set>
#include <string>
#include <string_view>

#include "base/assert.h"
#include "base/clock.h"
#include "base/dtype_text.h"
#include "base/json_text.h"
#include "base/size_text.h"
#include "ciuic/dtype.h"
#include "ciuic/status.h"

namespace ciuic {
namespace {

TEST(DataTypes, NamesAndSizes) {
  const size_t sizes[] = {4, 8, 2, 2, 4, 8, 1, 1, 2, 2, 4, 8, 1, 8, 16, 1, 1};
  std::set<std::string> names;
  for (int i = 0; i < kDataTypes; ++i) {
    const auto dtype = static_cast<DataType>(i);
    EXPECT_EQ(size_of(dtype), sizes[i]);
    EXPECT_EQ(dtype_named(name_of(dtype)), dtype);
    names.insert(name_of(dtype));
  }
  EXPECT_EQ(names.size(), static_cast<size_t>(kDataTypes));
  EXPECT_EQ(dtype_named("float"), std::nullopt);
}

// The numbers stand on the wire: they are written down here once more.
TEST(DataTypes, NumbersStayAsTheyAre) {
  const char* const dtypes[] = {"float32",       "float64",    "float16", "bfloat16",  "int32",
                                "int64",         "uint8",      "int8",    "int16",     "uint16",
                                "uint32",        "uint64",     "bool",    "complex64", "complex128",
                                "float8_e4m3fn", "float8_e5m2"};
  ASSERT_EQ(std::size(dtypes), static_cast<size_t>(kDataTypes));
  for (int i = 0; i < kDataTypes; ++i) EXPECT_STREQ(name_of(static_cast<DataType>(i)), dtypes[i]);
  const char* const ops[] = {"sum", "avg", "min", "max", "product", "band", "bor", "bxor"};
  ASSERT_EQ(std::size(ops), static_cast<size_t>(kReduceOps));
  for (int i = 0; i < kReduceOps; ++i) EXPECT_STREQ(name_of(static_cast<ReduceOp>(i)), ops[i]);
}

TEST(DataTypes, WhatIsReducible) {
  const auto ops_of = [](std::string_view name) {
    std::string ops;
    for (int i = 0; i < kReduceOps; ++i) {
      const auto op = static_cast<ReduceOp>(i);
      if (is_reducible(*dtype_named(name), op)) ops += std::string(name_of(op)) + " ";
    }
    return ops;
  };
  for (const char* name :
       {"float32", "float64", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"}) {
    EXPECT_EQ(ops_of(name), "sum avg min max product ") << name;
  }
  for (const char* name :
       {"int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"}) {
    EXPECT_EQ(ops_of(name), "sum avg min max product band bor bxor ") << name;
  }
  EXPECT_EQ(ops_of("complex64"), "sum avg product ");
  EXPECT_EQ(ops_of("complex128"), "sum avg product ");
  EXPECT_EQ(ops_of("bool"), "sum min max product band bor bxor ");
}

TEST(DataTypes, AnUndefinedPairNamesWhatThereIs) {
  EXPECT_EQ(undefined_pair(DataType::kComplex64, ReduceOp::kBXor),
            "bxor is not defined for complex64, which has sum, avg, product; bxor is defined for "
            "int32, int64, uint8, int8, int16, uint16, uint32, uint64, bool");
  EXPECT_EQ(undefined_pair(DataType::kBool, static_cast<ReduceOp>(kReduceOps)),
            "unknown is not defined for bool, which has sum, min, max, product, band, bor, bxor; "
            "unknown is defined for no dtype");
}

TEST(DataTypes, NamesOfOps) {
  for (int j = 0; j < kReduceOps; ++j) {
    const auto op = static_cast<ReduceOp>(j);
    EXPECT_EQ(reduce_op_named(name_of(op)), op);
  }
  EXPECT_EQ(reduce_op_named("mean"), std::nullopt);
}

TEST(DataTypes, ValuesFromOutsideAreRefused) {
  const auto dtype = static_cast<DataType>(kDataTypes);
  const auto op = static_cast<ReduceOp>(kReduceOps);
  EXPECT_FALSE(is_reducible(dtype, ReduceOp::kSum));
  EXPECT_FALSE(is_reducible(DataType::kFloat32, op));
  EXPECT_EQ(size_of(dtype), 0u);
  EXPECT_STREQ(name_of(dtype), "unknown");
  EXPECT_STREQ(name_of(op), "unknown");
}

TEST(SizeText, Parses) {
  EXPECT_EQ(parse_size("0"), 0);
  EXPECT_EQ(parse_size("1000"), 1000);
  EXPECT_EQ(parse_size("8B"), 8);
  EXPECT_EQ(parse_size("64K"), 65536);
  EXPECT_EQ(parse_size("64k"), 65536);
  EXPECT_EQ(parse_size("2MiB"), 2 << 20);
  EXPECT_EQ(parse_size("3GB"), int64_t{3} << 30);
  EXPECT_EQ(parse_size("1T"), int64_t{1} << 40);
  EXPECT_EQ(parse_size("8388607T"), INT64_MAX >> 40 << 40);
}

TEST(SizeText, Refuses) {
  for (const char* text : {"", "K", "-1", "1.5M", "1KK", "1 K", "1Kib", "1iB", "8388608T",
                           "9223372036854775808", "0x10", "1K "}) {
    EXPECT_EQ(parse_size(text), std::nullopt) << '"' << text << '"';
  }
}

TEST(SizeText, FormatsWhatItParses) {
  EXPECT_EQ(format_size(65536), "64K");
  EXPECT_EQ(format_size(1000), "1000");
  EXPECT_EQ(format_size(0), "0");
  for (const int64_t bytes : {int64_t{1}, int64_t{1023}, int64_t{1024}, int64_t{1536},
                              int64_t{1} << 20, int64_t{5} << 50, INT64_MAX}) {
    EXPECT_EQ(parse_size(format_size(bytes)), bytes);
  }
}

TEST(JsonText, EscapesWhatMustBe) {
  EXPECT_EQ(json_quoted("plain"), "\"plain\"");
  EXPECT_EQ(json_quoted("a\"b\\c\nd\te\x01"), R"("a\"b\\c\nd\te\u0001")");
  EXPECT_EQ(json_quoted("瓷"), "\"瓷\"");
}

TEST(Clock, DeadlinesDoNotOverflow) {
  EXPECT_EQ(deadline_after(5, 2), 2'000'005);
  EXPECT_EQ(deadline_after(5, INT64_MAX), kNever);
  EXPECT_EQ(left_ms(2'000'005, 5), 2);
  EXPECT_EQ(left_ms(2'000'005, 4), 3);
  EXPECT_EQ(left_ms(5, 6), 0);
  const TimeNs before = now_ns();
  EXPECT_LE(before, now_ns());
}

TEST(Status, CodesHaveNames) {
  std::set<std::string> names;
  for (int code = 0; code <= static_cast<int>(StatusCode::kSystem); ++code) {
    names.insert(name_of(static_cast<StatusCode>(code)));
  }
  EXPECT_EQ(names.size(), static_cast<size_t>(StatusCode::kSystem) + 1);
  EXPECT_EQ(names.count("unknown"), 0u);
}

TEST(AssertDeathTest, SavesOnceBeforeTheAbort) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto fail = [] {
    on_assertion_failure([] {
      std::fprintf(stderr, "saved\n");
      CIUIC_ASSERT(1 < 0);
    });
    CIUIC_ASSERT(2 + 2 == 5);
  };
  EXPECT_DEATH(fail(), "2 \\+ 2 == 5 does not hold\nsaved\n.*1 < 0 does not hold\n$");
}

}  // namespace
}  // namespace ciuic
