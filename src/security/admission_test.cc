// SPDX-License-Identifier: Apache-2.0
// admission_test.cc: who goes first where room is short.

#include "security/admission.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <list>

namespace ciuic::security {
namespace {

struct Guest {
  char name;
  bool hello;
  bool proven;
  bool is_proven() const { return proven; }
  bool has_said_hello() const { return hello; }
};

TEST(Admission, WhoHasSaidNothingGoesFirstAndWhoHasProvenItselfStays) {
  std::list<Guest> room = {{'a', true, true},
                           {'b', true, false},
                           {'c', false, false},
                           {'d', true, false},
                           {'e', false, false}};
  std::string gone;
  for (auto next = first_to_go(room); next != room.end(); next = first_to_go(room)) {
    gone += next->name;
    room.erase(next);
  }
  EXPECT_EQ(gone, "cebd");
  EXPECT_EQ(room.size(), 1U);
}

TEST(Admission, LeavesMostDescriptorsToTheProcess) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit low = before;
  low.rlim_cur = 256;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  EXPECT_EQ(most_unproven(1024), 64U);
  EXPECT_EQ(most_unproven(16), 16U);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
}

TEST(Admission, APassTakesFewerThanThereIsRoomFor) {
  for (const size_t most : {size_t{4}, size_t{16}, size_t{64}, size_t{1024}}) {
    EXPECT_GE(accepts_at_once(most), 1U);
    EXPECT_LE(4 * accepts_at_once(most), most);  // a few listeners take so many each
  }
}

}  // namespace
}  // namespace ciuic::security
