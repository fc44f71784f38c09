// SPDX-License-Identifier: Apache-2.0
// tcp_acceptor_test.cc: who is let in where many come at once, or no descriptor is left.

#include "transport/tcp/tcp_acceptor.h"

#include <gmock/gmock.h>

#include <filesystem>

#include "drivers/posix/no_descriptors.h"
#include "security/admission.h"
#include "transport/tcp/tcp_link_fixture.h"

namespace ciuic::transport::tcp {
namespace {

using ::testing::HasSubstr;

size_t descriptors() {
  const std::filesystem::directory_iterator open("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(open), end(open)));
}

class TcpAcceptorTest : public TcpLinkTest {
 protected:
  // libcrypto is opened at its first use, which is the join in a process that is not a test.
  TcpAcceptorTest() { EXPECT_TRUE(security::hmac_sha256("", "").ok()); }

  // Who connects and says nothing.
  posix::UniqueFd silent() { return std::move(posix::connect_to(address_, kNever).value()); }

  void step_until_accepted(size_t connections, size_t before) {
    ASSERT_TRUE(pump([&] { return descriptors() == before + 2 * connections; }));
  }

  void expect_connected(const posix::UniqueFd& peer) {
    ASSERT_TRUE(pump([&] { return link_->can_send(0); })) << link_->status().message();
    char kept = 0;
    EXPECT_EQ(*posix::receive_some(peer.get(), &kept, 1), 1u);
  }
};

TEST_F(TcpAcceptorTest, TakesAFewInEachStepAndForgetsNobody) {
  const size_t most = security::accepts_at_once(64);
  const size_t before = descriptors();
  std::vector<posix::UniqueFd> strangers;
  for (int i = 0; i < 40; ++i) strangers.push_back(silent());
  // The poller is asked before each few, so that those who are in are heard; it tells of the rest
  // though nobody comes any more.
  size_t taken = 0;
  while (taken < strangers.size()) {
    ASSERT_TRUE(poller_->poll(20'000)) << taken << " of " << strangers.size();
    if (!acceptor_->progress()) continue;
    const size_t now = descriptors() - before - strangers.size();
    EXPECT_GT(now, taken);
    EXPECT_LE(now, taken + most);
    taken = now;
    EXPECT_FALSE(acceptor_->progress()) << "without asking";
  }
}

TEST_F(TcpAcceptorTest, WhoHasBegunToProveItselfStaysWhereManySayNothing) {
  make_link({});
  const size_t before = descriptors();
  posix::UniqueFd honest = silent();
  security::Identity identity = identity_;
  identity.purpose = kTcpLinkPurpose;
  identity.from = 1;
  identity.to = 0;
  HandshakeIo handshake(security::Handshake::connecting(kTestSecret, identity));
  ASSERT_FALSE(*handshake.progress(honest.get()));  // its hello is sent
  step_until_accepted(1, before);
  std::vector<posix::UniqueFd> strangers;
  for (int i = 0; i < 100; ++i) {
    strangers.push_back(silent());
    step();
  }
  ASSERT_TRUE(pump([&] { return acceptor_->strangers() > 30; }));
  ASSERT_TRUE(pump([&] {
    const Result<bool> done = handshake.progress(honest.get());
    return !done.ok() || *done;
  }));
  expect_connected(honest);
}

TEST_F(TcpAcceptorTest, WhoSaysNothingGivesUpTheLastDescriptor) {
  make_link({});
  const size_t before = descriptors();
  const posix::UniqueFd stranger = silent();
  step_until_accepted(1, before);
  {
    posix::NoDescriptors none;
    none.spare_one();
    posix::UniqueFd outside = std::move(posix::start_connect(address_).value());
    const TcpConnection peer = prove(std::move(outside), 1, kTestSecret, identity_.tls);
    expect_connected(peer.fd);
    EXPECT_EQ(acceptor_->strangers(), 1u);
    EXPECT_TRUE(acceptor_->accepted().ok());
  }
}

TEST_F(TcpAcceptorTest, ASleeperWakesToAcceptAgainWhenDescriptorsAreFree) {
  make_link({});
  posix::UniqueFd outside;
  std::string why;
  {
    posix::NoDescriptors none;
    none.spare_one();
    outside = std::move(posix::start_connect(address_).value());
    ASSERT_TRUE(pump([&] { return !acceptor_->accepted().ok(); }));
    why = acceptor_->accepted().message();
    // Trying again and again would keep a core busy.
    while (poller_->poll(0)) {
    }
    EXPECT_FALSE(acceptor_->progress());
  }
  EXPECT_THAT(why, HasSubstr("RLIMIT_NOFILE allows"));
  // Nothing happens outside; the time of its next try wakes it.
  ASSERT_TRUE(poller_->poll(20'000));
  EXPECT_TRUE(acceptor_->progress());
  EXPECT_TRUE(acceptor_->accepted().ok());
  const TcpConnection peer = prove(std::move(outside), 1, kTestSecret, identity_.tls);
  expect_connected(peer.fd);
}

TEST_F(TcpAcceptorTest, ALinkThatCannotConnectNamesTheLimitThatKeepsOthersOutside) {
  make_link({}, /*connect_timeout_ms=*/1000);
  {
    posix::NoDescriptors none;
    none.spare_one();
    const posix::UniqueFd outside = std::move(posix::start_connect(address_).value());
    EXPECT_FALSE(link_->can_send(0));
    ASSERT_TRUE(pump([&] { return !link_->status().ok(); }));
  }
  expect_status(StatusCode::kPeerLost,
                {"rank 1 (host-b) cannot be reached", "connections wait that rank 0 cannot accept",
                 "EMFILE", "RLIMIT_NOFILE allows"});
}

}  // namespace
}  // namespace ciuic::transport::tcp
