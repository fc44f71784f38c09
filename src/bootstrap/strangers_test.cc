// SPDX-License-Identifier: Apache-2.0
// strangers_test.cc: whoever connects without the secret delays nobody and learns nothing.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "bootstrap/bytes.h"
#include "bootstrap/dial.h"
#include "bootstrap/exchange_fixture.h"
#include "bootstrap/invitation.h"
#include "bootstrap/memory_store.h"
#include "bootstrap/tcp_store.h"
#include "bootstrap/tcp_store_protocol.h"
#include "drivers/posix/socket.h"

namespace ciuic::bootstrap {
namespace {

using testing::card_for;
using testing::Joined;
using testing::options_for;
using testing::run_threads;

posix::UniqueFd connect(const posix::Address& address) {
  return std::move(*posix::connect_to(address, deadline_after(now_ns(), 10'000)));
}

void say(const posix::UniqueFd& fd, const std::string& bytes) {
  // The other side may have hung up already.
  [[maybe_unused]] const Status sent =
      posix::send_all(fd.get(), bytes.data(), bytes.size(), deadline_after(now_ns(), 10'000));
}

// Silent, garbage, a slow beginning of the right hello, a wrong secret, an old job id; all stay.
std::vector<posix::UniqueFd> send_strangers(const posix::Address& address,
                                            const security::Identity& identity, int silent) {
  std::vector<posix::UniqueFd> fds;
  for (int i = 0; i < silent; ++i) fds.push_back(connect(address));
  fds.push_back(connect(address));
  say(fds.back(), std::string(100'000, '\xff'));
  fds.push_back(connect(address));
  say(fds.back(), "GET / HTTP/1.1\r\nHost: somewhere\r\n\r\n");
  fds.push_back(connect(address));
  say(fds.back(),
      security::Handshake::connecting(std::string(32, 'x'), identity).to_send().substr(0, 20));
  fds.push_back(connect(address));
  say(fds.back(), security::Handshake::connecting(std::string(32, 'x'), identity).to_send() +
                      std::string(32, 'm'));
  security::Identity old = identity;
  old.job = "an older job";
  fds.push_back(connect(address));
  say(fds.back(),
      security::Handshake::connecting(std::string(32, 'x'), old).to_send() + std::string(32, 'm'));
  return fds;
}

TEST(Strangers, AtTheJoinDelayNobody) {
  auto store = std::make_shared<MemoryStore>();
  std::vector<Joined> joined;
  for (int i = 0; i < 3; ++i) joined.emplace_back(Status());
  std::vector<posix::UniqueFd> strangers;
  const TimeNs start = now_ns();
  run_threads(2, [&](int i) {
    if (i == 0) {
      joined[0] = exchange_cards(store.get(), card_for(0, 3), options_for(30'000));
      return;
    }
    MeetingPlace place(store.get(), "default");
    Result<Invitation> invitation = place.read(1, 20'000);
    ASSERT_TRUE(invitation.ok());
    security::Identity identity;
    identity.job = invitation->job;
    identity.epoch = 1;
    identity.group = group_id("default");
    identity.to = 0;
    strangers = send_strangers(invitation->loopback[0], identity, 30);
    run_threads(2, [&](int j) {
      const auto rank = static_cast<size_t>(j) + 1;
      joined[rank] = exchange_cards(store.get(), card_for(j + 1, 3), options_for(30'000));
    });
  });
  for (const Joined& one : joined) ASSERT_TRUE(one.ok()) << one.status().message();
  EXPECT_LT(now_ns() - start, 8'000'000'000);  // none was waited for until its time was over
}

// Rank 0 of three, and what its visitors need to know; the others come when they are told to.
class ThreeRanks : public ::testing::Test {
 protected:
  ThreeRanks() { join(0, store_.get()); }
  ~ThreeRanks() override { wait_for_all(); }

  void join(int rank, Store* store) {
    threads_.emplace_back([this, rank, store] {
      joined_[static_cast<size_t>(rank)] =
          exchange_cards(store, card_for(rank, 3), options_for(30'000));
    });
  }
  void wait_for_all() {
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

  Invitation invitation(uint32_t epoch) {
    return std::move(*MeetingPlace(store_.get(), "default").read(epoch, 20'000));
  }
  static security::Identity identity_of(const Invitation& invitation) {
    security::Identity identity;
    identity.job = invitation.job;
    identity.epoch = invitation.epoch;
    identity.group = group_id("default");
    identity.purpose = kJoinPurpose;
    identity.from = 1;
    identity.to = 0;
    return identity;
  }
  // As `of`'s rank 1 would, at the door of `at`'s rank 0.
  static Result<Channel> visit(const Invitation& at, const Invitation& of) {
    return dial("rank 0", at.loopback, of.secret, identity_of(of), 1 << 20,
                deadline_after(now_ns(), 20'000));
  }

  void expect_all_joined(uint64_t strangers) {
    wait_for_all();
    for (const Joined& one : joined_) ASSERT_TRUE(one.ok()) << one.status().message();
    EXPECT_EQ((*joined_[0])->strangers(), strangers);
  }

  std::shared_ptr<MemoryStore> store_ = std::make_shared<MemoryStore>();
  std::array<Joined, 3> joined_{Status(), Status(), Status()};
  std::vector<std::thread> threads_;
};

// Gives rank 0's invitation with the address of somebody in between.
class RelayedStore final : public Store {
 public:
  RelayedStore(Store* store, posix::Address relay) : store_(store), relay_(std::move(relay)) {}
  Status set(const std::string& key, const std::string& value) override {
    return store_->set(key, value);
  }
  Result<std::string> get(const std::string& key, int64_t timeout_ms) override {
    Result<std::string> value = store_->get(key, timeout_ms);
    if (!value.ok()) return value;
    Result<Invitation> invitation = decode_invitation(*value);
    if (!invitation.ok()) return value;
    invitation->addresses.clear();
    invitation->loopback = {relay_};
    return encode(*invitation);
  }
  Result<int64_t> add(const std::string& key, int64_t amount) override {
    return store_->add(key, amount);
  }
  std::string name() const override { return "relayed"; }
  bool is_private() const override { return false; }

 private:
  Store* store_;
  posix::Address relay_;
};

// Carries one connection to `to`, until either end closes, and records what goes there.
class Relay {
 public:
  explicit Relay(const posix::Address& to)
      : listener_(std::move(*posix::listen_at({"127.0.0.1", 0}))), thread_([this, to] {
          EXPECT_TRUE(*posix::wait_for(listener_.get(), POLLIN, deadline_after(now_ns(), 20'000)));
          const posix::UniqueFd from = std::move(*posix::accept_from(listener_.get()));
          const posix::UniqueFd there = connect(to);
          while (carry(from, there, true) && carry(there, from, false)) {
            pollfd fds[] = {{from.get(), POLLIN, 0}, {there.get(), POLLIN, 0}};
            ::poll(fds, 2, 20'000);
          }
        }) {}
  ~Relay() { thread_.join(); }

  posix::Address address() const { return *posix::local_address(listener_.get()); }

  // So many bytes of what has gone there, once they have.
  std::string recorded(size_t bytes) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, std::chrono::seconds(20),
                                  [&] { return recorded_.size() >= bytes; }));
    return recorded_.substr(0, bytes);
  }

 private:
  bool carry(const posix::UniqueFd& from, const posix::UniqueFd& to, bool records) {
    char bytes[4096];
    Result<size_t> count = posix::receive_some(from.get(), bytes, sizeof bytes);
    if (!count.ok()) return false;
    say(to, std::string(bytes, *count));
    const std::lock_guard lock(mutex_);
    if (records) recorded_.append(bytes, *count);
    changed_.notify_all();
    return true;
  }

  posix::UniqueFd listener_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string recorded_;
  std::thread thread_;
};

// Everything that comes, until the other side hangs up.
std::string hear_all(const posix::UniqueFd& fd) {
  std::string heard;
  char bytes[4096];
  while (*posix::wait_for(fd.get(), POLLIN, deadline_after(now_ns(), 20'000))) {
    Result<size_t> count = posix::receive_some(fd.get(), bytes, sizeof bytes);
    if (!count.ok()) return heard;
    heard.append(bytes, *count);
  }
  ADD_FAILURE() << "it does not hang up";
  return heard;
}

TEST_F(ThreeRanks, AReplayOfAnHonestHandshakeIsTurnedAway) {
  const Invitation at = invitation(1);
  {
    Relay relay(at.loopback[0]);
    RelayedStore relayed(store_.get(), relay.address());
    join(1, &relayed);
    // Its hello, its answer, and a good part of its card.
    const size_t hello =
        security::Handshake::connecting(at.secret, identity_of(at)).to_send().size();
    const std::string recorded = relay.recorded(hello + 100);
    const posix::UniqueFd replay = connect(at.loopback[0]);
    say(replay, recorded);
    // It gets the challenge that everybody gets, and no word after it.
    EXPECT_EQ(hear_all(replay).size(), hello + 32);
    join(2, store_.get());
    expect_all_joined(/*strangers=*/1);
    joined_[1] = Status();  // the relay ends with it
  }
}

TEST_F(ThreeRanks, AProcessOfAnOlderIncarnationIsTurnedAway) {
  const Invitation old = invitation(1);
  join(1, store_.get());
  join(2, store_.get());
  expect_all_joined(/*strangers=*/0);
  for (Joined& one : joined_) one = Status();
  join(0, store_.get());
  const Invitation at = invitation(2);
  EXPECT_NE(at.secret, old.secret);
  const Result<Channel> visited = visit(at, old);
  ASSERT_FALSE(visited.ok());
  EXPECT_EQ(visited.status().code(), StatusCode::kPermission) << visited.status().message();
  join(1, store_.get());
  join(2, store_.get());
  expect_all_joined(/*strangers=*/1);
}

TEST_F(ThreeRanks, ALengthThatCannotBeIsNotWaitedFor) {
  const Invitation at = invitation(1);
  Result<Channel> channel = visit(at, at);  // one that knows the secret
  ASSERT_TRUE(channel.ok()) << channel.status().message();
  for (const char* length : {"\xff\xff\xff\xff", "\x00\x00\x00\x7f"}) {
    Result<Channel> again = visit(at, at);
    ASSERT_TRUE(again.ok()) << again.status().message();
    ASSERT_TRUE(posix::send_all(again->fd(), length, 4, deadline_after(now_ns(), 20'000)).ok());
    Result<std::string> heard = again->receive_by(deadline_after(now_ns(), 20'000));
    if (heard.ok()) heard = again->receive_by(deadline_after(now_ns(), 20'000));  // the welcome
    EXPECT_EQ(heard.status().code(), StatusCode::kPeerLost);
  }
  join(1, store_.get());
  join(2, store_.get());
  expect_all_joined(/*strangers=*/0);
}

TEST_F(ThreeRanks, WhoComesAndGoesAllTheTimeKeepsNobodyOut) {
  const Invitation at = invitation(1);
  std::atomic<bool> over{false};
  std::vector<std::thread> flood;
  for (int i = 0; i < 3; ++i) {
    flood.emplace_back([&] {
      while (!over) {
        for (int burst = 0; burst < 20; ++burst) {
          // Refused once all have joined.
          [[maybe_unused]] const auto fd =
              posix::connect_to(at.loopback[0], deadline_after(now_ns(), 10'000));
        }
      }
    });
  }
  join(1, store_.get());
  join(2, store_.get());
  expect_all_joined(/*strangers=*/0);  // they leave by themselves
  over = true;
  for (std::thread& thread : flood) thread.join();
}

class StoreServer : public ::testing::Test {
 protected:
  const std::string secret_ = std::string(32, 'k');
  std::unique_ptr<TcpStoreServer> server_ =
      std::move(*TcpStoreServer::start({"127.0.0.1", 0}, secret_));

  Result<std::unique_ptr<TcpStore>> client(const std::string& secret) {
    return TcpStore::connect(server_->address(), secret, deadline_after(now_ns(), 10'000));
  }
};

TEST_F(StoreServer, StrangersDelayNobody) {
  const std::vector<posix::UniqueFd> strangers =
      send_strangers(server_->address(), store_identity(), 300);  // more than may be unproven
  auto store = std::move(*client(secret_));
  EXPECT_TRUE(store->set("key", "value").ok());
  EXPECT_EQ(*store->get("key", 1000), "value");
  EXPECT_GT(server_->strangers(), 0U);
}

TEST_F(StoreServer, WrongSecretIsRefused) {
  Result<std::unique_ptr<TcpStore>> store = client(std::string(32, 'x'));
  ASSERT_FALSE(store.ok());
  EXPECT_EQ(store.status().code(), StatusCode::kPermission) << store.status().message();
}

TEST_F(StoreServer, MalformedRequestsOfAClientAreAnswered) {
  const TimeNs deadline = deadline_after(now_ns(), 10'000);
  Result<Channel> channel =
      dial("the store", {server_->address()}, secret_, store_identity(), 1 << 20, deadline);
  ASSERT_TRUE(channel.ok()) << channel.status().message();
  const std::string of_no_key = ByteWriter().u8(2).text("").u64(1).take();
  for (const std::string& request : {std::string(), std::string("\0", 1), std::string(50, '\xff'),
                                     std::string("\x02"), of_no_key}) {
    channel->send(request);
    Result<std::string> answer = channel->receive_by(deadline);
    ASSERT_TRUE(answer.ok()) << answer.status().message();
    EXPECT_EQ(static_cast<StatusCode>(answer->front()), StatusCode::kInvalidArgument);
  }
  channel->send(std::string(kMaxStoreFrameBytes + 1, 'x'));
  EXPECT_EQ(channel->receive_by(deadline).status().code(), StatusCode::kPeerLost);
  EXPECT_TRUE((*client(secret_))->set("still", "there").ok());
}

TEST_F(StoreServer, PortInUseNamesTheHolder) {
  Result<std::unique_ptr<TcpStoreServer>> second =
      TcpStoreServer::start(server_->address(), secret_);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), StatusCode::kResource);
  EXPECT_THAT(second.status().message(), ::testing::HasSubstr("held by process"));
}

TEST_F(StoreServer, EndsWhileClientsWait) {
  auto waiting = std::move(*client(secret_));
  std::thread waiter([&] {
    EXPECT_EQ(waiting->get("never", 60'000).status().code(), StatusCode::kPeerLost);
    // What came too late must not be taken for the next answer.
    EXPECT_FALSE(waiting->set("a", "b").ok());
  });
  auto other = std::move(*client(secret_));
  EXPECT_TRUE(other->set("x", "y").ok());
  server_.reset();
  waiter.join();
}

}  // namespace
}  // namespace ciuic::bootstrap
