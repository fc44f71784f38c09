// SPDX-License-Identifier: Apache-2.0
// layout_test.cc: layouts as text, and the numbering of hosts.

#include "plan/layout.h"

#include <gtest/gtest.h>

#include <numeric>

namespace ciuic::plan {
namespace {

TEST(LayoutTest, TextGoesThereAndBack) {
  for (const char* text : {"1", "5", "3+2", "4x2", "1+4", "8x1", "1+1+3", "0,1,0,1,0"}) {
    const Result<Layout> layout = Layout::parse(text);
    ASSERT_TRUE(layout.ok()) << layout.status().message();
    EXPECT_EQ(layout->text(), text);
  }
  EXPECT_EQ(Layout::parse("4x2+1")->size(), 9);
  EXPECT_EQ(Layout::parse("4x2+1")->hosts(), 5);
  EXPECT_EQ(Layout::parse("1x5")->text(), "5");
}

TEST(LayoutTest, BadTextIsRefused) {
  for (const char* text : {"", "0", "-1", "3+", "+3", "3x", "x2", "3x0", "3 + 2", "3+2,", "0,,1",
                           "a", "99999999999", "65536x65536", "3.5", "0,-1", "2x2x2"}) {
    const Result<Layout> layout = Layout::parse(text);
    EXPECT_FALSE(layout.ok()) << text;
    EXPECT_EQ(layout.status().code(), StatusCode::kInvalidArgument);
  }
}

TEST(LayoutTest, HostsAreNumberedByTheirLowestRank) {
  const Layout layout({7, 3, 7, 3, 9});
  EXPECT_EQ(layout.hosts(), 3);
  EXPECT_EQ(layout.host_of(0), 0);
  EXPECT_EQ(layout.host_of(3), 1);
  EXPECT_EQ(layout.ranks_on(0), (std::vector<int>{0, 2}));
  EXPECT_EQ(layout.local_index(2), 1);
  EXPECT_EQ(layout.smallest_host(), 1);
  EXPECT_TRUE(layout.same_host(1, 3));
  EXPECT_FALSE(layout.same_host(0, 1));
  EXPECT_EQ(layout, Layout({0, 1, 0, 1, 2}));
}

}  // namespace
}  // namespace ciuic::plan
