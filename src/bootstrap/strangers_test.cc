// SPDX-License-Identifier: Apache-2.0
// strangers_test.cc: whoever connects without the secret delays nobody and learns nothing.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
  for (const std::string& request :
       {std::string(), std::string("\0", 1), std::string(50, '\xff'), std::string("\x02")}) {
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
