// SPDX-License-Identifier: Apache-2.0
// exchange_test.cc: ranks as threads meet, or learn why they cannot.

#include "bootstrap/exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "bootstrap/dial.h"
#include "bootstrap/exchange_fixture.h"
#include "bootstrap/file_store.h"
#include "bootstrap/invitation.h"
#include "bootstrap/memory_store.h"
#include "bootstrap/tcp_store.h"
#include "drivers/posix/no_descriptors.h"
#include "drivers/posix/socket.h"

namespace ciuic::bootstrap {
namespace {

using ::testing::AllOf;
using testing::card_for;
using testing::cards_for;
using ::testing::HasSubstr;
using testing::join_all;
using testing::Joined;
using testing::options_for;
using testing::run_threads;

// A path under the system's temporary folder that is not there yet.
std::string fresh_directory() {
  return fmt::format("{}/ciuic-test-{:016x}", std::filesystem::temp_directory_path().string(),
                     *posix::random_uint64());
}

std::vector<ExchangeOptions> same_options(size_t count, int64_t timeout_ms) {
  return std::vector<ExchangeOptions>(count, options_for(timeout_ms));
}

void expect_all_joined(const std::vector<Joined>& joined) {
  for (size_t rank = 0; rank < joined.size(); ++rank) {
    ASSERT_TRUE(joined[rank].ok()) << rank << ": " << joined[rank].status().message();
    const Roll& roll = (*joined[rank])->roll();
    const Roll& first = (*joined[0])->roll();
    EXPECT_EQ((*joined[rank])->rank(), static_cast<int>(rank));
    ASSERT_EQ(roll.cards.size(), joined.size());
    EXPECT_EQ(roll.cards, first.cards);
    EXPECT_EQ(roll.cards[rank].pid, 1000 + static_cast<int>(rank));
    EXPECT_EQ(roll.job, first.job);
    EXPECT_EQ(roll.secret, first.secret);
    EXPECT_EQ(roll.epoch, first.epoch);
    EXPECT_EQ(roll.group, group_id("default"));
    EXPECT_EQ(roll.tuning, "table");
  }
}

// The rounds after the exchange: everybody gets everybody's bytes.
void expect_rounds_work(std::vector<Joined>* joined) {
  const int size = static_cast<int>(joined->size());
  run_threads(size, [&](int rank) {
    Assembly& assembly = **(*joined)[static_cast<size_t>(rank)];
    for (int round = 0; round < 3; ++round) {
      Result<std::vector<std::string>> all =
          assembly.gather(fmt::format("{}:{}", round, rank), deadline_after(now_ns(), 20'000));
      ASSERT_TRUE(all.ok()) << all.status().message();
      ASSERT_EQ(all->size(), static_cast<size_t>(size));
      for (int other = 0; other < size; ++other) {
        EXPECT_EQ((*all)[static_cast<size_t>(other)], fmt::format("{}:{}", round, other));
      }
    }
  });
}

TEST(Exchange, AllRanksGetTheRoll) {
  for (const int size : {1, 2, 5, 16}) {
    auto store = std::make_shared<MemoryStore>();
    std::vector<Joined> joined = join_all(
        cards_for(size), same_options(static_cast<size_t>(size), 30'000), [&] { return store; });
    expect_all_joined(joined);
    expect_rounds_work(&joined);
    // Nothing but the number of the incarnation stays, and no secret.
    EXPECT_LE(store->keys().size(), 1u) << size;
  }
}

TEST(Exchange, TwoHundredRanks) {
  auto store = std::make_shared<MemoryStore>();
  std::vector<Joined> joined =
      join_all(cards_for(200), same_options(200, 120'000), [&] { return store; });
  expect_all_joined(joined);
  expect_rounds_work(&joined);
}

TEST(Exchange, OneRankNeedsNoStore) {
  Joined joined = exchange_cards(nullptr, card_for(0, 1), options_for(1000));
  ASSERT_TRUE(joined.ok());
  EXPECT_EQ((*(*joined)->gather(std::string("x"), kNever))[0], "x");
  EXPECT_FALSE(exchange_cards(nullptr, card_for(0, 2), options_for(1000)).ok());
}

TEST(Exchange, OverFilesAndAgain) {
  const std::string directory = fresh_directory();
  for (uint32_t epoch = 1; epoch <= 3; ++epoch) {
    std::vector<Joined> joined = join_all(cards_for(5), same_options(5, 30'000), [&] {
      return std::shared_ptr<Store>(std::move(*FileStore::open(directory)));
    });
    expect_all_joined(joined);
    EXPECT_EQ((*joined[0])->roll().epoch, epoch);
  }
  size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    files += entry.path().filename().string().front() != '.' ? 1 : 0;
  }
  EXPECT_EQ(files, 1u);  // the counter
  std::filesystem::remove_all(directory);
}

TEST(Exchange, OverTcpStore) {
  const std::string secret(32, 'k');
  auto server = std::move(*TcpStoreServer::start({"127.0.0.1", 0}, secret));
  std::vector<Joined> joined = join_all(cards_for(5), same_options(5, 30'000), [&] {
    return std::shared_ptr<Store>(
        std::move(*TcpStore::connect(server->address(), secret, deadline_after(now_ns(), 10'000))));
  });
  expect_all_joined(joined);
  expect_rounds_work(&joined);
}

TEST(Exchange, ManyGroupsAtOnceInOneStore) {
  auto store = std::make_shared<MemoryStore>();
  run_threads(8, [&](int group) {
    std::vector<ExchangeOptions> options = same_options(2, 60'000);
    for (ExchangeOptions& each : options) each.group_name = fmt::format("group {}", group);
    const std::vector<Joined> joined = join_all(cards_for(2), options, [&] { return store; });
    for (const Joined& one : joined) ASSERT_TRUE(one.ok()) << one.status().message();
    EXPECT_EQ((*joined[0])->roll().group, group_id(fmt::format("group {}", group)));
    EXPECT_EQ((*joined[0])->roll().job, (*joined[1])->roll().job);
  });
}

TEST(Exchange, RankOutsideTheSize) {
  MemoryStore store;
  for (const auto& [rank, size] : {std::pair{2, 2}, {-1, 2}, {0, 0}, {5, 3}}) {
    Joined joined = exchange_cards(&store, card_for(rank, size), options_for(1000));
    ASSERT_FALSE(joined.ok());
    EXPECT_EQ(joined.status().code(), StatusCode::kInvalidArgument);
  }
}

// Every rank gets the same error, with each of the words in it.
void expect_error(const std::vector<Card>& cards, StatusCode code,
                  const std::vector<std::string>& words) {
  auto store = std::make_shared<MemoryStore>();
  const std::vector<Joined> joined =
      join_all(cards, same_options(cards.size(), 20'000), [&] { return store; });
  for (const Joined& one : joined) {
    ASSERT_FALSE(one.ok());
    EXPECT_EQ(one.status().code(), code) << one.status().message();
    for (const std::string& word : words) EXPECT_THAT(one.status().message(), HasSubstr(word));
  }
}

TEST(Exchange, SizesThatDifferAreNamed) {
  std::vector<Card> cards = cards_for(3);
  cards[2].size = 4;
  expect_error(cards, StatusCode::kMismatch,
               {"number of ranks", "rank 0", "has 3", "rank 2", "has 4"});
}

TEST(Exchange, VersionsThatDifferAreNamed) {
  std::vector<Card> cards = cards_for(3);
  cards[1].library_version = "9.9.9";
  expect_error(cards, StatusCode::kMismatch, {"version of Ciuic", "rank 1", "9.9.9"});
  cards = cards_for(2);
  cards[1].wire_version = 7;
  expect_error(cards, StatusCode::kMismatch, {"wire version", "rank 1", "has 7"});
}

TEST(Exchange, OptionsThatDifferAreNamed) {
  std::vector<Card> cards = cards_for(2);
  cards[1].agreed[0].second = "1024";
  expect_error(cards, StatusCode::kMismatch, {"buffer_size", "67108864", "rank 1", "1024"});
}

TEST(Exchange, ARankThatIsThereTwice) {
  std::vector<Card> cards = cards_for(3);
  cards.push_back(card_for(1, 3));
  cards.erase(cards.begin() + 2);  // ranks 0, 1 and 1
  cards[2].pid = 7777;
  expect_error(cards, StatusCode::kMismatch, {"rank 1 is there twice", "process 7777"});
}

TEST(Exchange, RankZeroThatIsThereTwice) {
  std::vector<Card> cards = cards_for(1);
  cards[0].size = 2;
  cards.push_back(card_for(0, 2));
  expect_error(cards, StatusCode::kMismatch, {"rank 0 is there twice"});
}

TEST(Exchange, MissingRanksAreNamedOnAllThatCame) {
  auto store = std::make_shared<MemoryStore>();
  std::vector<Card> cards = cards_for(5);
  cards.erase(cards.begin() + 4);
  cards.erase(cards.begin() + 2);
  const TimeNs start = now_ns();
  std::vector<ExchangeOptions> options = same_options(3, 60'000);
  options[1].deadline = deadline_after(now_ns(), 800);  // who can wait least decides
  const std::vector<Joined> joined = join_all(cards, options, [&] { return store; });
  for (const Joined& one : joined) {
    ASSERT_FALSE(one.ok());
    EXPECT_EQ(one.status().code(), StatusCode::kTimeout);
    EXPECT_THAT(one.status().message(), HasSubstr("ranks 2, 4 did not come"));
  }
  EXPECT_LT(now_ns() - start, 30'000'000'000);
}

TEST(Exchange, MissingRankZeroIsNamed) {
  auto store = std::make_shared<MemoryStore>();
  const std::vector<Joined> joined =
      join_all({card_for(1, 3), card_for(2, 3)}, same_options(2, 300), [&] { return store; });
  for (const Joined& one : joined) {
    ASSERT_FALSE(one.ok());
    EXPECT_EQ(one.status().code(), StatusCode::kTimeout);
    EXPECT_THAT(one.status().message(), HasSubstr("rank 0 did not come"));
  }
}

TEST(Exchange, AnotherSharedSecretIsRefused) {
  auto store = std::make_shared<MemoryStore>();
  std::vector<ExchangeOptions> options = same_options(2, 1'500);
  options[0].shared_secret = std::string(32, 'a');
  options[1].shared_secret = std::string(32, 'b');
  const std::vector<Joined> joined = join_all(cards_for(2), options, [&] { return store; });
  EXPECT_EQ(joined[1].status().code(), StatusCode::kPermission) << joined[1].status().message();
  EXPECT_EQ(joined[0].status().code(), StatusCode::kTimeout);
  EXPECT_THAT(joined[0].status().message(), HasSubstr("does not know the secret"));
}

TEST(Exchange, SharedSecretIsMixedIn) {
  auto store = std::make_shared<MemoryStore>();
  std::vector<ExchangeOptions> options = same_options(3, 30'000);
  for (ExchangeOptions& each : options) each.shared_secret = std::string(32, 'a');
  expect_all_joined(join_all(cards_for(3), options, [&] { return store; }));
}

// What an incarnation leaves behind whose rank 0 was killed in the middle of its join.
void leave_stale_invitation(Store* store, const posix::Address& address) {
  MeetingPlace place(store, "default");
  Invitation invitation = std::move(*new_invitation());
  const MeetingPlace::State before = *place.look();
  invitation.epoch = before.next;
  invitation.machine_id = "machine";
  invitation.host_name = "gone";
  invitation.loopback = {address};
  ASSERT_TRUE(*place.claim(invitation.epoch));
  ASSERT_TRUE(place.open(invitation, before).ok());
}

TEST(Exchange, StaleInvitationIsPassedOver) {
  // Once nobody listens there any more, once somebody else, who says nothing.
  for (const bool listens : {false, true}) {
    auto store = std::make_shared<MemoryStore>();
    posix::UniqueFd listener = std::move(*posix::listen_at({"127.0.0.1", 0}));
    const posix::Address address = *posix::local_address(listener.get());
    if (!listens) listener.reset();
    leave_stale_invitation(store.get(), address);
    const std::vector<Joined> joined =
        join_all(cards_for(3), same_options(3, 30'000), [&] { return store; });
    expect_all_joined(joined);
    EXPECT_EQ((*joined[0])->roll().epoch, 2u);
  }
}

TEST(Exchange, GroupsWhoseLongNamesBeginAlikeDoNotMeet) {
  auto store = std::make_shared<MemoryStore>();
  const std::string plain(300, 'x');
  std::string letters;  // of three bytes each, of which a key has nine characters
  for (int i = 0; i < 20; ++i) letters += "\u7fa4";
  for (const std::string& name : {plain, letters}) {
    std::vector<Card> cards;
    std::vector<ExchangeOptions> options;
    for (int i = 0; i < 4; ++i) {
      cards.push_back(card_for(i % 2, 2));
      options.push_back(options_for(30'000));
      options.back().group_name = name + (i < 2 ? "a" : "b");
    }
    std::vector<Joined> joined = join_all(cards, options, [&] { return store; });
    for (int i = 0; i < 4; ++i) {
      ASSERT_TRUE(joined[i].ok()) << joined[i].status().message();
      const auto mate = static_cast<size_t>(i ^ 1);
      EXPECT_EQ((*joined[i])->roll().cards[mate % 2].uid, cards[mate].uid);
    }
  }
}

TEST(Exchange, RankZeroThatDiedBeforeItsInvitation) {
  auto store = std::make_shared<MemoryStore>();
  MeetingPlace place(store.get(), "default");
  ASSERT_TRUE(*place.claim(1));
  expect_all_joined(join_all(cards_for(2), same_options(2, 30'000), [&] { return store; }));
}

TEST(Exchange, RankThatDiedAndCameAgain) {
  auto store = std::make_shared<MemoryStore>();
  std::vector<Joined> joined;
  for (int i = 0; i < 3; ++i) joined.emplace_back(Status());
  std::thread rank_0(
      [&] { joined[0] = exchange_cards(store.get(), card_for(0, 3), options_for(30'000)); });
  {
    // Rank 1 hands over its card and is killed; it could not have waited much longer either.
    MeetingPlace place(store.get(), "default");
    Result<Invitation> invitation = place.read(1, 10'000);
    ASSERT_TRUE(invitation.ok());
    security::Identity identity;
    identity.job = invitation->job;
    identity.epoch = invitation->epoch;
    identity.group = group_id("default");
    identity.to = 0;
    const TimeNs deadline = deadline_after(now_ns(), 10'000);
    Result<Channel> channel =
        dial("rank 0", invitation->loopback, invitation->secret, identity, 1 << 20, deadline);
    ASSERT_TRUE(channel.ok()) << channel.status().message();
    channel->send(encode_card_frame(500, card_for(1, 3)));
    ASSERT_TRUE(channel->flush(deadline).ok());
  }
  run_threads(2, [&](int i) {
    const auto rank = static_cast<size_t>(i) + 1;
    joined[rank] = exchange_cards(store.get(), card_for(i + 1, 3), options_for(30'000));
  });
  rank_0.join();
  expect_all_joined(joined);
}

// It is not wanted back at once for somebody who is not there.
TEST(Exchange, TheLastDescriptorGoesToWhoComes) {
  auto store = std::make_shared<MemoryStore>();
  Joined joined = Status();
  posix::StayingThread rank_0(
      [&] { joined = exchange_cards(store.get(), card_for(0, 2), options_for(20'000)); });
  const Result<Invitation> at = MeetingPlace(store.get(), "default").read(1, 20'000);
  ASSERT_TRUE(at.ok()) << at.status().message();
  security::Identity identity;
  identity.job = at->job;
  identity.epoch = at->epoch;
  identity.group = group_id("default");
  identity.purpose = kJoinPurpose;
  identity.from = 1;
  identity.to = 0;
  {
    posix::NoDescriptors none;
    none.spare_one();  // for this end
    none.spare_one();
    Result<Channel> visitor = Channel::connect(
        at->loopback[0], security::Handshake::connecting(at->secret, identity), 1 << 20);
    ASSERT_TRUE(visitor.ok()) << visitor.status().message();
    const Result<std::string> welcome = visitor->receive_by(deadline_after(now_ns(), 10'000));
    EXPECT_TRUE(welcome.ok()) << welcome.status().message();
    visitor->send(encode_card_frame(60'000, card_for(1, 3)));  // ends the join
    EXPECT_TRUE(visitor->flush(deadline_after(now_ns(), 10'000)).ok());
    rank_0.wait();
  }
  EXPECT_EQ(joined.status().code(), StatusCode::kMismatch) << joined.status().message();
}

// The ranks that it names are there, and wait in its queue.
TEST(Exchange, ATimeOutNamesTheLimitThatKeptRanksOutside) {
  auto store = std::make_shared<MemoryStore>();
  Joined joined = Status();
  posix::StayingThread rank_0(
      [&] { joined = exchange_cards(store.get(), card_for(0, 2), options_for(3000)); });
  const Result<Invitation> at = MeetingPlace(store.get(), "default").read(1, 20'000);
  ASSERT_TRUE(at.ok()) << at.status().message();
  {
    posix::NoDescriptors none;
    none.spare_one();
    const Result<posix::UniqueFd> outside = posix::start_connect(at->loopback[0]);
    ASSERT_TRUE(outside.ok()) << outside.status().message();
    rank_0.wait();
  }
  EXPECT_EQ(joined.status().code(), StatusCode::kTimeout);
  EXPECT_THAT(joined.status().message(),
              AllOf(HasSubstr("rank 1 did not come"),
                    HasSubstr("connections wait that rank 0 (host here, process 1000) cannot"),
                    HasSubstr("EMFILE"), HasSubstr("RLIMIT_NOFILE allows")));
}

// Whatever its code: it would be looked for on the rank that reads it.
TEST(Exchange, AnErrorInARoundReachesAllRanksWithTheNameOfItsRank) {
  for (int code = 1; code <= static_cast<int>(StatusCode::kSystem); ++code) {
    auto store = std::make_shared<MemoryStore>();
    std::vector<Joined> joined =
        join_all(cards_for(3), same_options(3, 30'000), [&] { return store; });
    const int whose = code % 3;  // rank 0 tells the others of its own, too
    run_threads(3, [&](int rank) {
      Assembly& assembly = **joined[static_cast<size_t>(rank)];
      const Result<std::string> mine =
          rank == whose ? Result<std::string>(Status(static_cast<StatusCode>(code), "no luck"))
                        : Result<std::string>(std::string("fine"));
      const auto all = assembly.gather(mine, deadline_after(now_ns(), 20'000));
      ASSERT_FALSE(all.ok());
      EXPECT_EQ(static_cast<int>(all.status().code()), code);
      EXPECT_EQ(all.status().message(),
                fmt::format("rank {} (host here, process {}): no luck", whose, 1000 + whose));
      EXPECT_FALSE(assembly.gather(std::string("more"), kNever).ok());
    });
  }
}

TEST(Exchange, ALostRankIsNamedInTheRound) {
  auto store = std::make_shared<MemoryStore>();
  std::vector<Joined> joined =
      join_all(cards_for(3), same_options(3, 30'000), [&] { return store; });
  joined[1] = Status();
  run_threads(3, [&](int rank) {
    if (rank == 1) return;
    const auto all = (*joined[static_cast<size_t>(rank)])
                         ->gather(std::string("x"), deadline_after(now_ns(), 20'000));
    EXPECT_EQ(all.status().code(), StatusCode::kPeerLost);
    EXPECT_THAT(all.status().message(), HasSubstr("rank 1 (host here, process 1001)"));
  });
}

TEST(Exchange, ASilentRankIsNamedInTheRound) {
  auto store = std::make_shared<MemoryStore>();
  std::vector<Joined> joined =
      join_all(cards_for(3), same_options(3, 30'000), [&] { return store; });
  run_threads(3, [&](int rank) {
    if (rank == 1) return;
    const auto all = (*joined[static_cast<size_t>(rank)])
                         ->gather(std::string("x"), deadline_after(now_ns(), 400));
    EXPECT_EQ(all.status().code(), StatusCode::kTimeout);
    EXPECT_THAT(all.status().message(), HasSubstr("rank 1 (host here, process 1001)"));
  });
}

}  // namespace
}  // namespace ciuic::bootstrap
