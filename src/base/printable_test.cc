// SPDX-License-Identifier: Apache-2.0
// printable_test.cc: text from outside is one line of UTF-8 afterwards, whatever it was.

#include "base/printable.h"

#include <gtest/gtest.h>

#include "base/json_text.h"

namespace ciuic {
namespace {

TEST(Printable, LeavesTextAsItIs) {
  for (const char* text : {"", "rank 3 (host b)", "Grüße, 漢字, 😀", "a\xc2\xa0z"}) {
    EXPECT_EQ(printable(text), text);
  }
}

TEST(Printable, ReplacesWhatIsNoText) {
  EXPECT_EQ(printable("a\nb\tc\rd"), "a b c d");
  EXPECT_EQ(printable("\x1b[31mred"), "?[31mred");
  EXPECT_EQ(printable(std::string_view("a\0b", 3)), "a?b");
  EXPECT_EQ(printable("\x7f\xc2\x85"), "??");
  EXPECT_EQ(printable("\u2028\u2029\u202a\u202e\u2066\u2069"), "??????");
  EXPECT_EQ(printable("\u2027\u202f\u2065\u206a"), "\u2027\u202f\u2065\u206a");
}

TEST(Printable, ReplacesWhatIsNoUtf8) {
  EXPECT_EQ(printable("\xff"), "?");
  EXPECT_EQ(printable("\xc3"), "?");                 // cut off
  EXPECT_EQ(printable("\xc0\xaf"), "??");            // a slash in a second form
  EXPECT_EQ(printable("\xe0\x80\xaf"), "???");       // and a third
  EXPECT_EQ(printable("\xed\xa0\x80"), "???");       // half of a pair of UTF-16
  EXPECT_EQ(printable("\xf4\x90\x80\x80"), "????");  // above U+10FFFF
  EXPECT_EQ(printable("\xe2\x28\xa1"), "?(?");
}

TEST(Printable, LooksAtNoMoreThanItsLimit) {
  EXPECT_EQ(printable("abcdef", 3), "abc");
  EXPECT_EQ(printable("aü", 2), "a?");
}

TEST(Printable, JsonIsUtf8WhateverTheTextIs) {
  EXPECT_EQ(json_quoted("a\xff"), "\"a\xef\xbf\xbd\"");
  EXPECT_EQ(json_quoted("ü\n"), "\"ü\\n\"");
}

TEST(Printable, JsonHoldsNoControlCharacter) {
  EXPECT_EQ(json_quoted("a\x7f\x1b"), R"("a\u007f\u001b")");
  EXPECT_EQ(json_quoted("a\xc2\x85z"), R"("a\u0085z")");
  EXPECT_EQ(json_quoted("a\u202eb\u2069"), R"("a\u202eb\u2069")");
}

}  // namespace
}  // namespace ciuic
