// SPDX-License-Identifier: Apache-2.0
// control_node_test.cc: nodes that talk over lines in memory, under a virtual clock.

#include "communicator/control_node.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <set>
#include <vector>

#include "communicator/control_messages.h"

namespace ciuic::control {
namespace {

constexpr TimeNs kMs = 1'000'000;

// Lines between rank 0 and the others; messages arrive at once, unless their line is cut or stands
// still.
class Star {
 public:
  explicit Star(int size)
      : inboxes_(size, std::vector<std::deque<std::string>>(size)), ends_(size) {}

  class End final : public Lines {
   public:
    End(Star* star, int rank) : star_(star), rank_(rank) {}
    void send(int rank, const Message& message) override {
      if (star_->ends_[rank].lost || star_->ends_[rank_].lost) return;
      star_->inboxes_[rank][rank_].push_back(encode(message));
    }
    bool receive(int rank, Message* message) override {
      auto& inbox = star_->inboxes_[rank_][rank];
      if (inbox.empty() || star_->ends_[rank].stands_still || star_->ends_[rank_].stands_still) {
        return false;
      }
      Result<Message> taken = decode_message(inbox.front());
      inbox.pop_front();
      EXPECT_TRUE(taken.ok());
      *message = *taken;
      return true;
    }
    bool is_lost(int rank) override { return star_->ends_[rank].lost; }

   private:
    Star* star_;
    int rank_;
  };

  struct State {
    bool lost = false;
    bool stands_still = false;
  };
  State& of(int rank) { return ends_[rank]; }

 private:
  std::vector<std::vector<std::deque<std::string>>> inboxes_;  // [to][from]
  std::vector<State> ends_;
};

class FakeDataPath final : public engine::DataPath {
 public:
  void end(const Status& status) override {
    EXPECT_TRUE(ended.ok()) << "ended twice";
    ended = status;
  }
  void mark_gone(int rank, const Status& why) override { gone.emplace_back(rank, why); }
  engine::CallRecord call_record(uint32_t sequence) override {
    const bool known = sequence < calls.size();
    return known ? calls[sequence] : engine::CallRecord();
  }
  engine::GroupProgress progress_of_group() override {
    return {.lowest = lowest,
            .next = static_cast<uint32_t>(calls.size()),
            .has_ended = !ended.ok(),
            .waits_since = waits_since,
            .message_since = message_since};
  }
  bool needs(uint32_t sequence, int rank) override {
    return sequence == lowest && needed.contains(rank);
  }

  void call(const char* operation, uint32_t fingerprint, TimeNs now) {
    calls.push_back({.operation = operation,
                     .sequence = static_cast<uint32_t>(calls.size()),
                     .fingerprint = fingerprint,
                     .dtype = DataType::kFloat32,
                     .op = ReduceOp::kSum,
                     .reduces = true,
                     .root = -1,
                     .count = 4});
    waits_since = now;
    lowest = static_cast<uint32_t>(calls.size()) - 1;
  }

  Status ended;
  std::vector<std::pair<int, Status>> gone;
  std::vector<engine::CallRecord> calls;
  uint32_t lowest = 0;
  TimeNs waits_since = kNever;
  TimeNs message_since = kNever;
  std::set<int> needed;  // by the operation under way
};

class ControlPlane : public testing::Test {
 protected:
  static constexpr int64_t kTimeoutMs = 8000;

  void make(int size) {
    star_ = std::make_unique<Star>(size);
    Settings settings = Settings::for_timeout(kTimeoutMs);
    for (int rank = 0; rank < size; ++rank) {
      settings.names.push_back("rank " + std::to_string(rank) + " (host a)");
    }
    for (int rank = 0; rank < size; ++rank) {
      settings.rank = rank;
      paths_.push_back(std::make_unique<FakeDataPath>());
      lines_.push_back(std::make_unique<Star::End>(star_.get(), rank));
      nodes_.push_back(
          std::make_unique<Node>(settings, lines_.back().get(), paths_.back().get(), now_));
      runs_.push_back(true);
    }
  }

  // Every millisecond each running node steps.
  void run(TimeNs time) {
    for (const TimeNs until = now_ + time; now_ < until; now_ += kMs) {
      for (size_t rank = 0; rank < nodes_.size(); ++rank) {
        if (runs_[rank]) nodes_[rank]->step(now_);
      }
    }
  }

  void kill(int rank) {
    runs_[rank] = false;
    star_->of(rank).lost = true;
  }
  void stop(int rank) {
    runs_[rank] = false;
    star_->of(rank).stands_still = true;
  }
  void resume(int rank) {
    runs_[rank] = true;
    star_->of(rank).stands_still = false;
  }

  engine::Cause late(int rank, uint32_t sequence) {
    return {.status = {StatusCode::kTimeout, "late on rank " + std::to_string(rank) + "."},
            .has_operation = true,
            .sequence = sequence,
            .operation = "all_reduce",
            .is_late = true};
  }

  void expect_all(StatusCode code, const std::string& part, const std::vector<int>& but = {}) {
    std::string message;
    for (size_t rank = 0; rank < paths_.size(); ++rank) {
      if (std::find(but.begin(), but.end(), static_cast<int>(rank)) != but.end()) continue;
      const Status& ended = paths_[rank]->ended;
      EXPECT_EQ(ended.code(), code) << "rank " << rank << ": " << ended.message();
      EXPECT_NE(ended.message().find(part), std::string::npos) << ended.message();
      if (message.empty()) message = ended.message();
      EXPECT_EQ(ended.message(), message) << "one error for all";
    }
  }

  TimeNs now_ = 1000 * kMs;
  std::unique_ptr<Star> star_;
  std::vector<std::unique_ptr<FakeDataPath>> paths_;
  std::vector<std::unique_ptr<Star::End>> lines_;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::vector<bool> runs_;
};

TEST_F(ControlPlane, TheFirstCauseWinsOnEveryRank) {
  make(5);
  run(10 * kMs);
  nodes_[3]->report({.status = {StatusCode::kPeerLost, "rank 4 is gone"}, .about = 4}, now_);
  run(2 * kMs);
  nodes_[2]->report({.status = {StatusCode::kAborted, "another"}}, now_);
  run(10 * kMs);
  expect_all(StatusCode::kPeerLost, "rank 4 is gone");
}

TEST_F(ControlPlane, DifferingCallsAreNamedWithTheirRanks) {
  make(4);
  for (int rank = 0; rank < 4; ++rank) {
    paths_[rank]->call(rank == 2 ? "broadcast" : "all_reduce", rank == 2 ? 7 : 8, now_);
  }
  nodes_[1]->report({.status = {StatusCode::kMismatch, "they differ"},
                     .about = 2,
                     .has_operation = true,
                     .sequence = 0,
                     .operation = "all_reduce"},
                    now_);
  run(10 * kMs);
  expect_all(StatusCode::kMismatch,
             "ranks 0, 1, 3 called all_reduce(float32, 4 elements, sum), "
             "rank 2 called broadcast(");
}

TEST_F(ControlPlane, CallsThatDifferInWhatTheirWordsLeaveOutAreToldSo) {
  make(2);
  for (int rank = 0; rank < 2; ++rank) {
    paths_[rank]->call("all_reduce", rank == 0 ? 7 : 8, now_);
  }
  run(kTimeoutMs / 4 * kMs);
  expect_all(StatusCode::kMismatch,
             "op and root. What these words do not show are the counts of each rank");
}

TEST_F(ControlPlane, DifferingCallsThatExchangeNoMessageAreFoundByAsking) {
  make(3);
  for (int rank = 0; rank < 3; ++rank) paths_[rank]->call("broadcast", rank == 0 ? 1 : 2, now_);
  run(kTimeoutMs / 4 * kMs);
  expect_all(StatusCode::kMismatch, "rank 0 called");
}

// Rank 0 has ended its operation 0 and waits for 1; the others wait for 0, in which they differ.
TEST_F(ControlPlane, DifferingCallsAreFoundInTheOperationThatIsFurthestBehind) {
  for (const bool late_first : {false, true}) {
    SCOPED_TRACE(late_first);
    paths_.clear();
    lines_.clear();
    nodes_.clear();
    runs_.clear();
    make(3);
    paths_[0]->call("broadcast", 7, now_);
    paths_[0]->call("all_reduce", 8, now_);
    for (int rank = 1; rank < 3; ++rank) paths_[rank]->call("all_reduce", 8, now_);
    if (late_first) {
      nodes_[0]->report(late(0, 1), now_);
      run(10 * kMs);
    } else {
      run(kTimeoutMs / 4 * kMs);
    }
    expect_all(StatusCode::kMismatch, "rank 0 called broadcast");
  }
}

TEST_F(ControlPlane, ALateRankIsNamedInTheTimeOut) {
  make(4);
  for (int rank = 0; rank < 3; ++rank) paths_[rank]->call("all_reduce", 1, now_);
  run(kTimeoutMs * kMs);
  for (const auto& path : paths_) EXPECT_TRUE(path->ended.ok()) << "not before the deadline";
  nodes_[1]->report(late(1, 0), now_);
  run(10 * kMs);
  expect_all(StatusCode::kTimeout, "rank 3 has not called it (its next call is operation 0)");
}

TEST_F(ControlPlane, AStoppedRankIsLost) {
  make(4);
  for (int rank = 0; rank < 4; ++rank) paths_[rank]->call("all_reduce", 1, now_);
  run(100 * kMs);
  stop(2);
  run((kTimeoutMs - 100) * kMs);
  nodes_[0]->report(late(0, 0), now_);
  run(1000 * kMs);
  expect_all(StatusCode::kPeerLost, "rank 2 (host a) has been silent for", {2});
}

// Of messages between two ranks nobody else is asked.
TEST_F(ControlPlane, AMessageThatIsLateTellsOfAPeerThatIsStopped) {
  make(4);
  run(100 * kMs);
  stop(2);
  run((kTimeoutMs - 100) * kMs);
  nodes_[1]->report(
      {.status = {StatusCode::kTimeout, "recv from rank 2"}, .about = 2, .is_late = true}, now_);
  run(1000 * kMs);
  expect_all(StatusCode::kPeerLost, "rank 2 (host a) has been silent for", {2});
}

TEST_F(ControlPlane, SilenceAloneIsLostAfterTheTimeOut) {
  make(3);
  stop(1);
  run((kTimeoutMs + 2000) * kMs);
  expect_all(StatusCode::kPeerLost, "rank 1 (host a) has been silent for", {1});
}

TEST_F(ControlPlane, RanksThatFindTheHubsSilenceAtDifferentTimesSayTheSame) {
  make(3);
  stop(0);
  run((kTimeoutMs - 200) * kMs);
  runs_[2] = false;
  run(700 * kMs);
  EXPECT_FALSE(paths_[1]->ended.ok());
  runs_[2] = true;
  run(2000 * kMs);
  expect_all(StatusCode::kPeerLost, "rank 0 (host a) has been silent for more than 8.0 s", {0});
}

TEST_F(ControlPlane, ADeadRankIsToldToAllAtOnceAndEndsNothingByItself) {
  make(4);
  kill(3);
  run(2 * kMs);
  for (int rank = 0; rank < 3; ++rank) {
    ASSERT_EQ(paths_[rank]->gone.size(), 1u);
    EXPECT_EQ(paths_[rank]->gone[0].first, 3);
    EXPECT_NE(paths_[rank]->gone[0].second.message().find("rank 3 (host a) is gone"),
              std::string::npos);
    EXPECT_TRUE(paths_[rank]->ended.ok());
    EXPECT_TRUE(nodes_[rank]->gone()[3]);
  }
}

TEST_F(ControlPlane, AnOperationThatNeedsADeadRankEndsThoughNoLinkTells) {
  make(4);
  kill(3);
  run(2 * kMs);
  paths_[1]->call("all_reduce", 1, now_);
  paths_[2]->call("all_reduce", 1, now_);
  paths_[2]->needed = {3};
  run(2000 * kMs);
  expect_all(StatusCode::kPeerLost, "rank 3 (host a) is gone", {3});
}

TEST_F(ControlPlane, ADeadRankThatHasDoneItsPartIsNoLoss) {
  make(4);
  for (int rank = 0; rank < 3; ++rank) paths_[rank]->call("reduce", 1, now_);
  kill(3);
  run(3000 * kMs);
  for (int rank = 0; rank < 3; ++rank) EXPECT_TRUE(paths_[rank]->ended.ok());
  nodes_[1]->report(late(1, 0), now_);
  run(10 * kMs);
  expect_all(StatusCode::kTimeout, "late on rank 1", {3});
}

TEST_F(ControlPlane, TheHubsDeathEndsOperationsAfterAMoment) {
  make(3);
  for (int rank = 0; rank < 3; ++rank) paths_[rank]->call("all_reduce", 1, now_);
  run(2 * kMs);
  kill(0);
  run(10 * kMs);
  EXPECT_TRUE(paths_[1]->ended.ok()) << "it may still finish";
  paths_[2]->waits_since = kNever;  // this one has
  paths_[1]->waits_since = kNever;  // as has this one, but it waits for a message
  paths_[1]->message_since = now_;
  run(2000 * kMs);
  EXPECT_EQ(paths_[1]->ended.code(), StatusCode::kPeerLost);
  EXPECT_NE(paths_[1]->ended.message().find("rank 0 (host a) is gone"), std::string::npos);
  EXPECT_TRUE(paths_[2]->ended.ok());
}

TEST_F(ControlPlane, AnOperationThatIsCalledAfterTheHubsDeathHasItsMoment) {
  make(3);
  kill(0);
  run(5000 * kMs);
  EXPECT_GT(nodes_[1]->next_step(), now_ - kMs) << "there is nothing to do";
  EXPECT_LE(nodes_[1]->next_step(), now_ + 125 * kMs) << "nobody tells it of a call";
  paths_[1]->call("broadcast", 1, now_);
  run(500 * kMs);
  EXPECT_TRUE(paths_[1]->ended.ok());
  run(2000 * kMs);
  EXPECT_EQ(paths_[1]->ended.code(), StatusCode::kPeerLost);
}

TEST_F(ControlPlane, NonsenseEndsNothing) {
  make(3);
  run(2 * kMs);
  for (MessageKind kind : {MessageKind::kAlive, MessageKind::kLate, MessageKind::kCalled,
                           MessageKind::kAsk, MessageKind::kMissing}) {
    const Message nonsense{
        .kind = kind, .about = 77, .flag = true, .sequence = 1'000'000, .text = "nonsense"};
    lines_[1]->send(0, nonsense);
    lines_[0]->send(2, nonsense);
  }
  run(3000 * kMs);
  for (const auto& path : paths_) EXPECT_TRUE(path->ended.ok()) << path->ended.message();
}

TEST_F(ControlPlane, AnAbortIsSaidThoughTheHubHasDied) {
  make(3);
  run(2 * kMs);
  kill(0);
  run(2 * kMs);
  nodes_[1]->report({.status = {StatusCode::kAborted, "rank 1 called abort()"}}, now_);
  nodes_[2]->report({.status = {StatusCode::kAborted, "what it heard"}, .about = 1}, now_);
  run(2 * kMs);
  EXPECT_EQ(paths_[1]->ended.message(), "rank 1 called abort()");
  EXPECT_EQ(paths_[2]->ended.code(), StatusCode::kPeerLost) << paths_[2]->ended.message();
}

TEST_F(ControlPlane, WhoHasJustLeftIsNotBlamedForALateOperation) {
  make(3);
  for (int rank = 0; rank < 3; ++rank) paths_[rank]->call("reduce", 1, now_);
  nodes_[2]->leave(now_);
  paths_[0]->needed = {2};  // its last message is on its way
  run(10 * kMs);
  nodes_[0]->report(late(0, 0), now_);
  run(10 * kMs);
  expect_all(StatusCode::kTimeout, "late on rank 0", {2});
}

TEST_F(ControlPlane, ASilentHubDelaysAnErrorButDoesNotPreventIt) {
  make(3);
  for (int rank = 0; rank < 3; ++rank) paths_[rank]->call("all_reduce", 1, now_);
  stop(0);
  run(6000 * kMs);
  nodes_[1]->report(late(1, 0), now_);
  nodes_[2]->report(late(2, 0), now_);
  run(2100 * kMs);
  for (int rank = 1; rank < 3; ++rank) {
    EXPECT_EQ(paths_[rank]->ended.code(), StatusCode::kPeerLost);
    EXPECT_NE(paths_[rank]->ended.message().find("rank 0 (host a) has been silent"),
              std::string::npos);
  }
}

TEST_F(ControlPlane, ARankThatHasLeftIsNoLoss) {
  make(3);
  for (int rank = 0; rank < 3; ++rank) paths_[rank]->call("all_reduce", 1, now_);
  nodes_[2]->leave(now_);
  EXPECT_TRUE(nodes_[2]->is_over());
  kill(2);
  run(3000 * kMs);
  EXPECT_TRUE(paths_[0]->ended.ok());
  EXPECT_TRUE(paths_[1]->ended.ok());
  ASSERT_EQ(paths_[1]->gone.size(), 1u) << "the end of its line says nothing new";
  nodes_[1]->report(late(1, 0), now_);
  run(10 * kMs);
  expect_all(StatusCode::kTimeout, "late on rank 1", {2});
}

TEST_F(ControlPlane, ARankThatHasLeftIsNamedByAnOperationThatNeedsIt) {
  make(3);
  nodes_[2]->leave(now_);
  paths_[0]->call("all_reduce", 1, now_);
  paths_[0]->needed = {2};
  run(3000 * kMs);
  expect_all(StatusCode::kPeerLost, "rank 2 (host a) closed its communicator", {2});
}

TEST_F(ControlPlane, TheHubGoesOnAfterRank0HasLeft) {
  make(3);
  nodes_[0]->leave(now_);
  EXPECT_FALSE(nodes_[0]->is_over());
  run(10 * kMs);
  nodes_[1]->report({.status = {StatusCode::kAborted, "rank 1 called abort()"}}, now_);
  run(10 * kMs);
  expect_all(StatusCode::kAborted, "rank 1 called abort()", {0});
  nodes_[1]->leave(now_);
  nodes_[2]->leave(now_);
  run(2 * kMs);
  EXPECT_TRUE(nodes_[0]->is_over());
}

TEST_F(ControlPlane, RanksThatWereStoppedAllAtOnceHaveLostNobody) {
  make(3);
  run(100 * kMs);
  for (int rank = 0; rank < 3; ++rank) stop(rank);
  now_ += 2 * kTimeoutMs * kMs;
  for (int rank = 0; rank < 3; ++rank) {
    resume(rank);
    run(30 * kMs);  // one after the other
  }
  run(2 * kTimeoutMs * kMs);
  for (int rank = 0; rank < 3; ++rank) EXPECT_TRUE(paths_[rank]->ended.ok()) << rank;
}

TEST_F(ControlPlane, WhoWasStoppedAndGivenUpIsToldSo) {
  for (const int victim : {0, 2}) {
    paths_.clear();
    lines_.clear();
    nodes_.clear();
    runs_.clear();
    make(3);
    run(100 * kMs);
    stop(victim);
    run(2 * kTimeoutMs * kMs);
    for (const int other : {1, 2 - victim}) nodes_[other]->leave(now_);
    run(10 * kMs);
    resume(victim);
    run(10 * kMs);
    EXPECT_EQ(paths_[victim]->ended.code(), StatusCode::kPeerLost);
    EXPECT_TRUE(nodes_[victim]->gone()[static_cast<size_t>(victim)]) << victim;
  }
}

TEST_F(ControlPlane, WithoutAHubEachRankGoesByItsOwnCauses) {
  make(3);
  nodes_[0]->leave(now_);
  run(2 * kMs);
  kill(0);
  run(5000 * kMs);
  EXPECT_TRUE(paths_[1]->ended.ok()) << "it left in good order";
  nodes_[1]->report({.status = {StatusCode::kTimeout, "too late"}}, now_);
  run(2 * kMs);
  EXPECT_EQ(paths_[1]->ended.message(), "too late");
}

}  // namespace
}  // namespace ciuic::control
