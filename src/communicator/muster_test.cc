// SPDX-License-Identifier: Apache-2.0
// muster_test.cc: survivors that find each other, over doors in memory.

#include "communicator/muster.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <set>
#include <utility>

namespace ciuic::control {
namespace {

constexpr TimeNs kMs = 1'000'000;

// All ranks' doors. Who is dead does not listen; who does not muster answers nothing.
struct Street {
  explicit Street(int ranks) : size(ranks) {}
  int size;
  std::set<int> dead;
  std::set<int> musters;
  std::map<std::pair<int, int>, std::vector<bool>> calls;          // (from, to): gone
  std::map<std::pair<int, int>, std::vector<bool>> announcements;  // (from, to): members
};

class StreetDoors final : public Doors {
 public:
  StreetDoors(Street* street, int rank) : street_(street), rank_(rank) {}
  void call(int rank, const std::vector<bool>& gone) override {
    street_->calls[{rank_, rank}] = gone;
  }
  Answer answer(int rank) override {
    if (!street_->calls.contains({rank_, rank})) return Answer::kNone;
    if (street_->dead.contains(rank)) return Answer::kGone;
    return street_->musters.contains(rank) ? Answer::kThere : Answer::kNone;
  }
  bool has_come(int rank) override {
    return street_->calls.contains({rank, rank_}) && !street_->dead.contains(rank);
  }
  std::vector<bool> gone_by(int rank) override {
    return has_come(rank) ? street_->calls[{rank, rank_}] : std::vector<bool>();
  }
  void announce(int rank, const std::vector<bool>& members) override {
    street_->announcements[{rank_, rank}] = members;
  }
  bool announced(int rank, std::vector<bool>* members) override {
    const auto found = street_->announcements.find({rank, rank_});
    if (found == street_->announcements.end()) return false;
    *members = found->second;
    return true;
  }

 private:
  Street* street_;
  int rank_;
};

class Mustering : public testing::Test {
 protected:
  void begin(int rank, const std::set<int>& known_gone) {
    std::vector<bool> gone(street_.size, false);
    for (int each : known_gone) gone[each] = true;
    street_.musters.insert(rank);
    doors_[rank] = std::make_unique<StreetDoors>(&street_, rank);
    musters_[rank] =
        std::make_unique<Muster>(doors_[rank].get(), rank, gone, now_, now_ + 10'000 * kMs);
  }
  void run(TimeNs time) {
    for (const TimeNs until = now_ + time; now_ < until; now_ += kMs) {
      for (auto& [rank, muster] : musters_) {
        if (!street_.dead.contains(rank)) muster->step(now_);
      }
    }
  }
  std::set<int> members(int rank) {
    EXPECT_TRUE(musters_[rank]->step(now_)) << "rank " << rank << " still waits";
    EXPECT_TRUE(musters_[rank]->status().ok()) << musters_[rank]->status().message();
    std::set<int> in;
    for (size_t each = 0; each < musters_[rank]->members().size(); ++each) {
      if (musters_[rank]->members()[each]) in.insert(static_cast<int>(each));
    }
    return in;
  }

  Street street_{5};
  TimeNs now_ = 0;
  std::map<int, std::unique_ptr<StreetDoors>> doors_;
  std::map<int, std::unique_ptr<Muster>> musters_;
};

TEST_F(Mustering, SurvivorsAgreeWithoutTheDead) {
  street_.dead = {3};
  for (int rank : {4, 0, 2, 1}) begin(rank, {3});
  run(5 * kMs);
  for (int rank : {0, 1, 2, 4}) EXPECT_EQ(members(rank), (std::set<int>{0, 1, 2, 4}));
}

TEST_F(Mustering, TheDeadAreFoundWhereNobodyHasBeenTold) {
  street_.dead = {0, 1, 4};
  for (int rank : {2, 3}) begin(rank, {});
  run(300 * kMs);
  for (int rank : {2, 3}) EXPECT_EQ(members(rank), (std::set<int>{2, 3}));
}

TEST_F(Mustering, OneKnowsWhatTheOthersDoNot) {
  for (int rank : {0, 1, 2}) begin(rank, {4});
  begin(3, {4});
  street_.musters.insert(4);  // stopped, so it neither comes nor is it found dead
  run(5 * kMs);
  for (int rank : {0, 1, 2, 3}) EXPECT_EQ(members(rank), (std::set<int>{0, 1, 2, 3}));
}

TEST_F(Mustering, ALateRankIsWaitedFor) {
  for (int rank : {0, 2, 3, 4}) begin(rank, {});
  run(5000 * kMs);
  EXPECT_FALSE(musters_[2]->step(now_));
  begin(1, {});
  run(5 * kMs);
  for (int rank = 0; rank < 5; ++rank) EXPECT_EQ(members(rank).size(), 5u);
}

TEST_F(Mustering, WhoNeitherComesNorIsGoneEndsItOnAll) {
  for (int rank : {0, 2, 3, 4}) begin(rank, {});
  run(10'001 * kMs);
  for (int rank : {0, 2, 3, 4}) {
    ASSERT_TRUE(musters_[rank]->step(now_));
    EXPECT_EQ(musters_[rank]->status().code(), StatusCode::kTimeout);
  }
  EXPECT_NE(musters_[0]->status().message().find("rank 1 did not come"), std::string::npos);
}

TEST_F(Mustering, TheLeaderMayDieMeanwhile) {
  for (int rank : {0, 2, 3, 4}) begin(rank, {});
  run(5 * kMs);
  street_.dead = {0};
  begin(1, {});
  run(300 * kMs);
  for (int rank : {1, 2, 3, 4}) EXPECT_EQ(members(rank), (std::set<int>{1, 2, 3, 4}));
}

TEST_F(Mustering, ARankThatWasGivenUpLearnsIt) {
  for (int rank : {0, 1, 2, 3}) begin(rank, {4});
  run(5 * kMs);
  EXPECT_EQ(members(0), (std::set<int>{0, 1, 2, 3}));
  begin(4, {});
  street_.announcements[{0, 4}] = musters_[0]->members();
  run(5 * kMs);
  ASSERT_TRUE(musters_[4]->step(now_));
  EXPECT_EQ(musters_[4]->status().code(), StatusCode::kPeerLost);
}

}  // namespace
}  // namespace ciuic::control
