// SPDX-License-Identifier: Apache-2.0
// base_test.cc: the table of dtypes, byte counts as text, JSON strings, deadlines, names,
// assertions.

#include <gtest/gtest.h>

#include <cstdio>
#include <set>
#include <string>

#include "base/assert.h"
#include "base/clock.h"
#include "base/json_text.h"
#include "base/size_text.h"
#include "ciuic/dtype.h"
#include "ciuic/status.h"

namespace ciuic {
namespace {

TEST(DataTypes, NamesAndSizes) {
  const size_t sizes[] = {4, 8, 2, 2, 4, 8, 1};
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

TEST(DataTypes, EveryOpIsDefinedOnEveryDtype) {
  for (int i = 0; i < kDataTypes; ++i) {
    for (int j = 0; j < kReduceOps; ++j) {
      EXPECT_TRUE(is_reducible(static_cast<DataType>(i), static_cast<ReduceOp>(j)))
          << i << " " << j;
    }
  }
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
