// SPDX-License-Identifier: Apache-2.0
// card_test.cc: cards and frames survive the way, and garbage does no harm.

#include "bootstrap/card.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "bootstrap/exchange_fixture.h"
#include "bootstrap/invitation.h"
#include "bootstrap/messages.h"

namespace ciuic::bootstrap {
namespace {

using testing::card_for;

Card full_card() {
  Card card = card_for(3, 5);
  card.addresses = {{"10.0.0.1", 4711}, {"fd00::1", 4712}};
  card.unix_name = "ciuic-name";
  card.start_ticks = 123456789012345;
  return card;
}

TEST(Card, NamesAFormerRankThatNobodyIsTold) {
  Card card;
  card.rank = 1;
  card.host_name = "node7";
  card.pid = 4711;
  EXPECT_EQ(card.who(), "rank 1 (host node7, process 4711)");
  const std::string told = encode(card);
  card.former_rank = 2;
  EXPECT_EQ(card.who(), "rank 1 (host node7, process 4711; rank 2 of the group before)");
  EXPECT_EQ(encode(card), told);
  EXPECT_EQ(rank_name(1, -1), "rank 1");
  EXPECT_EQ(rank_name(1, 2), "rank 1 (rank 2 of the group before)");
}

TEST(Card, RoundTrip) {
  const Card card = full_card();
  Result<Card> decoded = decode_card(encode(card));
  ASSERT_TRUE(decoded.ok());
  EXPECT_EQ(*decoded, card);
  EXPECT_EQ(card.who(), "rank 3 (host here, process 1003)");
}

TEST(Card, WhatIsTooLongIsCutNotSentWhole) {
  Card card = full_card();
  card.host_name.assign(100'000, 'h');
  card.addresses.resize(1000, {"10.0.0.1", 1});
  const std::string bytes = encode(card);
  EXPECT_LE(bytes.size(), kMaxCardBytes);
  EXPECT_TRUE(decode_card(bytes).ok());
}

TEST(Card, AnotherFormNamesTheVersion) {
  Card card = full_card();
  card.library_version = "7.1.0";
  std::string bytes = encode(card);
  bytes[0] = 9;
  bytes.resize(40);  // the rest of it may be anything
  Result<Card> decoded = decode_card(bytes);
  EXPECT_EQ(decoded.status().code(), StatusCode::kMismatch);
  EXPECT_THAT(decoded.status().message(), ::testing::HasSubstr("7.1.0"));
}

// Each decoder, on every prefix, on every byte changed, and on noise: an error or a value, no more.
template <typename Decode>
void try_garbage(const std::string& good, Decode decode) {
  EXPECT_TRUE(decode(good));
  EXPECT_FALSE(decode(good + "x"));
  for (size_t bytes = 0; bytes < good.size(); ++bytes) {
    EXPECT_FALSE(decode(good.substr(0, bytes))) << bytes << " of " << good.size();
  }
  std::mt19937 random(20240611);
  for (size_t at = 0; at < good.size(); ++at) {
    std::string bad = good;
    bad[at] = static_cast<char>(random());
    decode(bad);
  }
  for (int i = 0; i < 2000; ++i) {
    std::string noise(random() % 200, '\0');
    for (char& c : noise) c = static_cast<char>(random());
    decode(noise);
  }
}

TEST(Garbage, EveryDecoder) {
  try_garbage(encode(full_card()), [](const std::string& b) { return decode_card(b).ok(); });
  try_garbage(encode_card_frame(5, full_card()),
              [](const std::string& b) { return decode_card_frame(b).ok(); });
  try_garbage(encode_round(3, std::string("bytes")),
              [](const std::string& b) { return decode_round(b).ok(); });
  try_garbage(encode_result({3, {}, {"a", "", "ccc"}}),
              [](const std::string& b) { return decode_result(b).ok(); });
  Roll roll;
  roll.cards = {card_for(0, 2), card_for(1, 2)};
  roll.tuning = "table";
  try_garbage(encode_roll(roll), [](const std::string& b) {
    Roll out;
    return decode_roll(b, &out).ok();
  });
  Invitation invitation = std::move(*new_invitation());
  invitation.addresses = {{"10.0.0.1", 1}};
  try_garbage(encode(invitation), [](const std::string& b) { return decode_invitation(b).ok(); });
}

TEST(Garbage, CardsOfARollStandByRank) {
  const std::vector<std::vector<Card>> rolls = {
      {card_for(0, 2), card_for(0, 2)},      {card_for(1, 2), card_for(0, 2)},
      {card_for(0, 2), card_for(70'000, 2)}, {card_for(0, 2), card_for(-1, 2)},
      {card_for(0, 3), card_for(1, 3)},
  };
  for (const std::vector<Card>& cards : rolls) {
    Roll sent;
    sent.cards = cards;
    Roll read;
    EXPECT_EQ(decode_roll(encode_roll(sent), &read).code(), StatusCode::kInvalidArgument);
  }
}

TEST(Garbage, TextsOfPeersAreOneLineOfUtf8) {
  Card card = full_card();
  card.host_name = "a\x1b[2J\xff\n";
  EXPECT_EQ(decode_card(encode(card))->host_name, "a?[2J? ");
  const Status failure(StatusCode::kTimeout, "late\xc3(\x07");
  EXPECT_EQ(decode_failure(encode_failure(failure)).message(), "late?(?");
  EXPECT_EQ(decode_round(encode_round(1, failure))->status.message(), "late?(?");
}

TEST(Garbage, AFailureIsAlwaysAnError) {
  EXPECT_EQ(decode_failure(encode_failure(Status(StatusCode::kMismatch, "why"))).code(),
            StatusCode::kMismatch);
  EXPECT_FALSE(decode_failure(encode_failure(Status())).ok());
  EXPECT_FALSE(decode_failure("").ok());
}

TEST(Invitation, LoopbackIsForTheSameMachineOnly) {
  const std::vector<posix::Address> outside = {{"10.0.0.1", 1}};
  const std::vector<posix::Address> loopback = {{"127.0.0.1", 2}};
  EXPECT_EQ(reachable("a", "b", outside, loopback), outside);
  EXPECT_EQ(reachable("a", "a", outside, loopback).front().text, "127.0.0.1");
  EXPECT_EQ(reachable("a", "a", outside, loopback).size(), 2u);
}

}  // namespace
}  // namespace ciuic::bootstrap
