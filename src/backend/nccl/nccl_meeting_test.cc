// SPDX-License-Identifier: Apache-2.0
// nccl_meeting_test.cc: cards that cannot make a communicator, and why.

#include "backend/nccl/nccl_meeting.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace ciuic::backend {
namespace {

using testing::HasSubstr;

NcclCard card_of(const std::string& host, const std::string& bus_id, int version = 22705) {
  NcclCard card;
  NcclCard::set(card.host_id, host + "'s id");
  NcclCard::set(card.host_name, host);
  NcclCard::set(card.bus_id, bus_id);
  card.version = version;
  return card;
}

TEST(NcclMeeting, RanksOnGpusOfTheirOwnMayGoOn) {
  const std::vector<NcclCard> cards = {card_of("a", "0000:01:00.0"), card_of("a", "0000:02:00.0"),
                                       card_of("b", "0000:01:00.0"),
                                       card_of("b", "0000:02:00.0", 22703)};
  EXPECT_EQ(check_cards(cards).message(), "");
}

TEST(NcclMeeting, TwoRanksOnOneGpuAreNamed) {
  const std::vector<NcclCard> cards = {card_of("a", "0000:01:00.0"), card_of("b", "0000:01:00.0"),
                                       card_of("b", "0000:01:00.0")};
  const Status status = check_cards(cards);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(
      status.message(),
      HasSubstr("ranks 1 and 2 are both on GPU 0000:01:00.0 of host b; NCCL needs one each"));
}

TEST(NcclMeeting, ARankThatCannotTellsAllOthersWhy) {
  std::vector<NcclCard> cards = {card_of("a", "0000:01:00.0"), card_of("b", "0000:01:00.0")};
  cards[1].code = static_cast<int32_t>(StatusCode::kResource);
  NcclCard::set(cards[1].why, "cudaStreamCreateWithFlags failed: out of memory (2)");
  const Status status = check_cards(cards);
  EXPECT_EQ(status.code(), StatusCode::kResource);
  EXPECT_THAT(status.message(), HasSubstr("rank 1 on b cannot use NCCL: cudaStreamCreate"));
}

TEST(NcclMeeting, AnotherVersionIsNamed) {
  const std::vector<NcclCard> cards = {card_of("a", "0000:01:00.0"),
                                       card_of("b", "0000:01:00.0", 22602)};
  const Status status = check_cards(cards);
  EXPECT_EQ(status.code(), StatusCode::kMismatch);
  EXPECT_THAT(status.message(), HasSubstr("rank 1 has NCCL 2.26.2 and rank 0 has 2.27.5"));
}

TEST(NcclMeeting, ATextThatDoesNotFitIsCut) {
  NcclCard card;
  NcclCard::set(card.host_name, std::string(1000, 'x'));
  EXPECT_EQ(NcclCard::text(card.host_name), std::string(63, 'x'));
}

}  // namespace
}  // namespace ciuic::backend
