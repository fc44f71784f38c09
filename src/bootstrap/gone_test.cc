// SPDX-License-Identifier: Apache-2.0
// gone_test.cc: a rank dies between two steps of the join; the others know it at once, and whom to
// name. No time-out here is near: what waits for one hangs.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bootstrap/exchange_fixture.h"
#include "bootstrap/fenced_store.h"
#include "bootstrap/invitation.h"
#include "bootstrap/memory_store.h"
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

constexpr int64_t kLongMs = 3'600'000;

// A line between two ranks, which ends when one end is closed.
struct Line {
  posix::UniqueFd end[2];
};

Line new_line() {
  posix::UniqueFd listener = std::move(posix::listen_at({"127.0.0.1", 0}).value());
  const posix::Address at = posix::local_address(listener.get()).value();
  Line line;
  line.end[0] = std::move(posix::connect_to(at, kNever).value());
  while (!line.end[1].valid()) line.end[1] = std::move(posix::accept_from(listener.get()).value());
  return line;
}

// Ranks 0, 1 and 2, once 2, 3 and 5, that have met; the value is there already for the others.
class Fence final : public Store, public FencedStore {
 public:
  Fence(std::string value, std::vector<std::pair<int, int>> lines)
      : value_(std::move(value)), lines_(std::move(lines)) {}

  Status set(const std::string&, const std::string&) override { return {}; }
  Result<std::string> get(const std::string&, int64_t) override { return std::string(); }
  Result<int64_t> add(const std::string&, int64_t) override { return int64_t{0}; }
  std::string name() const override { return "fence"; }

  Result<std::string> broadcast(const std::string* value, TimeNs) override {
    return value == nullptr ? value_ : *value;
  }
  uint32_t count() const override { return 1; }
  int former_rank(int rank) const override { return rank == 2 ? 5 : rank + 2; }
  void watch(std::vector<pollfd>* fds) const override {
    for (const auto& [rank, fd] : lines_) fds->push_back({fd, POLLIN, 0});
  }
  Status look() override {
    for (const auto& [rank, fd] : lines_) {
      char byte = 0;
      const Result<size_t> count = posix::receive_some(fd, &byte, 1);
      if (count.ok()) continue;
      return {StatusCode::kPeerLost, rank_name(rank, former_rank(rank)) + " is gone"};
    }
    return {};
  }

 private:
  std::string value_;
  std::vector<std::pair<int, int>> lines_;
};

TEST(Gone, RankZeroMissesAtOnceWhoHasMetItAndDied) {
  Line first = new_line();
  Line second = new_line();
  Fence fence("", {{1, first.end[0].get()}, {2, second.end[0].get()}});
  Joined joined = Status();
  std::thread rank_0(
      [&] { joined = exchange_cards(&fence, card_for(0, 3), options_for(kLongMs)); });
  second.end[1].reset();
  rank_0.join();
  EXPECT_EQ(joined.status().code(), StatusCode::kPeerLost);
  EXPECT_EQ(joined.status().message(), "rank 2 (rank 5 of the group before) is gone");
}

TEST(Gone, WhoHasMetRankZeroDoesNotAskForItForever) {
  posix::UniqueFd listener = std::move(posix::listen_at({"127.0.0.1", 0}).value());
  Invitation invitation = std::move(*new_invitation());
  invitation.epoch = 2;
  invitation.machine_id = "machine";
  invitation.host_name = "gone";
  invitation.loopback = {*posix::local_address(listener.get())};
  listener.reset();
  Line line = new_line();
  line.end[1].reset();
  Fence fence(encode(invitation), {{0, line.end[0].get()}});
  const Joined joined = exchange_cards(&fence, card_for(1, 3), options_for(kLongMs));
  EXPECT_EQ(joined.status().code(), StatusCode::kPeerLost);
  EXPECT_EQ(joined.status().message(), "rank 0 (rank 2 of the group before) is gone");
}

TEST(Gone, WhoDoesNotComeIsNamedByBothNumbers) {
  Line line = new_line();
  Fence fence("", {{1, line.end[0].get()}});
  const Joined joined = exchange_cards(&fence, card_for(0, 3), options_for(300));
  EXPECT_EQ(joined.status().code(), StatusCode::kTimeout);
  EXPECT_THAT(
      joined.status().message(),
      HasSubstr("ranks 1 (rank 3 of the group before), 2 (rank 5 of the group before) did not"));
}

// Polls as one does who waits for something else, until the join has failed.
Status watch_until_it_fails(Assembly* assembly) {
  std::vector<pollfd> fds;
  while (true) {
    const Status failed = assembly->look(fds);
    if (!failed.ok()) return failed;
    fds.clear();
    assembly->watch(&fds);
    const Status waited = wait_for_any(&fds, kNever);
    if (!waited.ok()) return waited;
  }
}

TEST(Gone, WhoWaitsForSomethingElseLearnsOfADeath) {
  for (const int victim : {0, 1, 2}) {
    auto store = std::make_shared<MemoryStore>();
    std::vector<Joined> joined = join_all(
        cards_for(3), std::vector<ExchangeOptions>(3, options_for(30'000)), [&] { return store; });
    joined[static_cast<size_t>(victim)] = Status();
    run_threads(3, [&](int rank) {
      if (rank == victim) return;
      Assembly& assembly = **joined[static_cast<size_t>(rank)];
      const Status failed = watch_until_it_fails(&assembly);
      EXPECT_EQ(failed.code(), StatusCode::kPeerLost);
      // The round that all come to then tells everybody who it was.
      const auto all =
          assembly.gather(Result<std::string>(failed), deadline_after(now_ns(), kLongMs));
      EXPECT_EQ(all.status().code(), StatusCode::kPeerLost);
      EXPECT_THAT(all.status().message(),
                  AllOf(HasSubstr(fmt::format("rank {} (host here", victim)),
                        HasSubstr("left during the join")));
      joined[static_cast<size_t>(rank)] = Status();
    });
  }
}

TEST(Gone, WhoIsEarlyInTheNextRoundIsNotTakenForDead) {
  auto store = std::make_shared<MemoryStore>();
  std::vector<Joined> joined = join_all(
      cards_for(2), std::vector<ExchangeOptions>(2, options_for(30'000)), [&] { return store; });
  std::thread early([&] {
    const auto all = (*joined[1])->gather(std::string("b"), deadline_after(now_ns(), kLongMs));
    EXPECT_TRUE(all.ok()) << all.status().message();
  });
  Assembly& assembly = **joined[0];
  std::vector<pollfd> fds;
  assembly.watch(&fds);
  ASSERT_TRUE(wait_for_any(&fds, kNever).ok());
  EXPECT_TRUE(assembly.look(fds).ok());
  fds.clear();
  assembly.watch(&fds);
  for (const pollfd& entry : fds) EXPECT_EQ(entry.fd, -1);  // would be told again and again
  const auto all = assembly.gather(std::string("a"), deadline_after(now_ns(), kLongMs));
  ASSERT_TRUE(all.ok()) << all.status().message();
  EXPECT_EQ((*all)[1], "b");
  early.join();
}

}  // namespace
}  // namespace ciuic::bootstrap
